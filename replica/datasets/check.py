"""All problems of a directory of images, and the description of one that has none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from aiperf.config.dataset_manifest import (
    MANIFEST_NAME,
    SPLITS,
    DatasetManifest,
    FileEntry,
    Split,
    SplitEntry,
    read_dataset_manifest,
    write_dataset_manifest,
)
from aiperf.errors import DatasetError
from replica.datasets.naming import SHARD_PATTERN, sha256_of
from replica.datasets.prepare import Progress
from replica.datasets.sources import Place, open_folders

NAMED_PROBLEMS = 5
"""This many bad images of a file are named; the others are counted."""

FOLDER_CHUNK = 1000
"""Images of a folder that one worker checks at a time."""


@dataclass(frozen=True, slots=True)
class Findings:
    """Contents and problems of one file of images, or of one stretch of a folder."""

    entry: FileEntry
    largest_label: int
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Contents of a directory, and all its problems."""

    images: dict[Split, int]
    classes: int
    problems: tuple[str, ...]


def check(data_dir: Path, report: Progress, workers: int) -> CheckResult:
    """Read every image. Raises DatasetError if the directory has no description."""
    manifest = read_dataset_manifest(data_dir)
    if manifest.format == "folder":
        return _check_folder(data_dir, manifest, report, workers)
    problems = list(_file_problems(data_dir, manifest))
    listed = [(split, entry) for split in SPLITS for entry in manifest.split(split).files]
    present = [(split, entry) for split, entry in listed if (data_dir / entry.name).is_file()]
    found = _examine([data_dir / entry.name for _, entry in present], report, workers)
    images: dict[Split, int] = dict.fromkeys(SPLITS, 0)
    for split, entry in present:
        findings = found[entry.name]
        images[split] += findings.entry.images
        problems += findings.problems
        problems += _differences(entry, findings, len(manifest.class_names))
    return CheckResult(images, len(manifest.class_names), tuple(problems))


def _file_problems(data_dir: Path, manifest: DatasetManifest) -> Iterator[str]:
    listed = {entry.name for split in SPLITS for entry in manifest.split(split).files}
    for name in sorted(listed):
        if not (data_dir / name).is_file():
            yield f"{name}: is missing"
        match = SHARD_PATTERN.fullmatch(name)
        if match is None:
            yield f"{name}: is not a shard name such as train-00000-of-01024"
    for path in sorted(data_dir.iterdir()):
        if path.name not in listed and path.name != MANIFEST_NAME:
            yield f"{path.name}: does not belong to the data set"
    for split in SPLITS:
        files = manifest.split(split).files
        if files and any(not entry.name.endswith(f"-of-{len(files):05d}") for entry in files):
            yield f"{split}: {len(files)} shards are listed, their names say otherwise"


def _differences(entry: FileEntry, found: Findings, classes: int) -> Iterator[str]:
    if found.entry.images != entry.images:
        yield f"{entry.name}: holds {found.entry.images} images, not {entry.images}"
    if found.largest_label > classes:
        yield f"{entry.name}: has label {found.largest_label}, but there are {classes} classes"
    if found.entry.sha256 != entry.sha256:
        yield f"{entry.name}: its checksum is not that of {MANIFEST_NAME}: the file was changed or damaged"


def _examine(files: Sequence[Path], report: Progress, workers: int) -> dict[str, Findings]:
    found: dict[str, Findings] = {}
    if not files:
        return found
    with ProcessPoolExecutor(min(workers, len(files)), mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(examine_shard, path) for path in files]):
            findings = future.result()
            found[findings.entry.name] = findings
            report(len(found), len(files))
    return found


def examine_shard(path: Path) -> Findings:
    """Read and decode every image of a shard."""
    import tensorflow as tf  # noqa: PLC0415  (in the worker processes only)

    from replica.datasets.shards import read_shard  # noqa: PLC0415

    count, largest, problems = 0, 0, []
    try:
        for label, encoded in read_shard(path):
            largest = max(largest, label)
            if label < 1:
                problems.append(f"{path.name}, image {count}: label {label}; labels count from 1")
            try:
                tf.io.decode_jpeg(encoded, channels=3)
            except tf.errors.InvalidArgumentError:
                problems.append(f"{path.name}, image {count}: cannot be decoded")
            count += 1
    except (tf.errors.DataLossError, tf.errors.InvalidArgumentError) as error:
        problems.append(f"{path.name}: damaged after image {count}: {str(error.message).splitlines()[0][:200]}")
    entry = FileEntry(name=path.name, images=count, size_bytes=path.stat().st_size, sha256=sha256_of(path))
    return Findings(entry, largest, _shortened(path.name, problems))


def _shortened(name: str, problems: list[str]) -> tuple[str, ...]:
    rest = len(problems) - NAMED_PROBLEMS
    return tuple(problems[:NAMED_PROBLEMS]) + ((f"{name}: and {rest} more problems",) if rest > 0 else ())


def _check_folder(data_dir: Path, manifest: DatasetManifest, report: Progress, workers: int) -> CheckResult:
    problems: list[str] = []
    images: dict[Split, int] = {}
    places: list[Place] = []
    for split in SPLITS:
        entry = manifest.split(split).files[0]
        rows = [line.split("\t") for line in (data_dir / entry.name).read_text(encoding="utf-8").splitlines()]
        images[split] = len(rows)
        if len(rows) != entry.images:
            problems.append(f"{entry.name}: lists {len(rows)} images, not {entry.images}")
        places += [Place(name, int(label), data_dir / name) for name, label in rows]
    chunks = [places[start : start + FOLDER_CHUNK] for start in range(0, len(places), FOLDER_CHUNK)]
    with ProcessPoolExecutor(min(workers, len(chunks)), mp_context=get_context("spawn")) as pool:
        for done, future in enumerate(as_completed([pool.submit(examine_files, chunk) for chunk in chunks]), 1):
            problems += future.result()
            report(done, len(chunks))
    return CheckResult(images, len(manifest.class_names), tuple(problems))


def examine_files(places: Sequence[Place]) -> tuple[str, ...]:
    """Read and decode images of a folder."""
    import tensorflow as tf  # noqa: PLC0415  (in the worker processes only)

    problems = []
    for place in places:
        try:
            tf.io.decode_jpeg(place.read(), channels=3)
        except (OSError, tf.errors.InvalidArgumentError) as error:
            reason = error.strerror if isinstance(error, OSError) else "cannot be decoded as JPEG"
            problems.append(f"{place.name}: {reason}")
    return _shortened("folder", problems)


def describe(data_dir: Path, image_size: int, report: Progress, workers: int) -> DatasetManifest:
    """Write dataset.json for files that other tools made: shards, or image folders.

    Raises DatasetError if the files are neither, or are damaged.
    """
    shards = {split: sorted(data_dir.glob(f"{split}-?????-of-?????")) for split in SPLITS}
    if not any(shards.values()):
        return _describe_folder(data_dir, image_size)
    found = _examine([path for split in SPLITS for path in shards[split]], report, workers)
    problems = [problem for findings in found.values() for problem in findings.problems]
    if problems or not all(shards.values()):
        missing = [f"no {split} shards" for split in SPLITS if not shards[split]]
        raise DatasetError(f"{data_dir}: cannot be described: {'; '.join([*missing, *problems])}")
    classes = max(findings.largest_label for findings in found.values())
    parts = {split: SplitEntry(files=tuple(found[path.name].entry for path in shards[split])) for split in SPLITS}
    manifest = DatasetManifest(
        format="tfrecord",
        source="shards made elsewhere",
        image_size=image_size,
        class_names=tuple(f"class {number}" for number in range(1, classes + 1)),
        train=parts["train"],
        validation=parts["validation"],
    )
    write_dataset_manifest(data_dir, manifest)
    return manifest


def _describe_folder(data_dir: Path, image_size: int) -> DatasetManifest:
    source = open_folders(data_dir)
    parts = {}
    for split in SPLITS:
        index = data_dir / f"{split}.index"
        lines = [f"{place.path.relative_to(data_dir)}\t{place.label}" for place in source.places(split)]
        index.write_text("\n".join(lines) + "\n", encoding="utf-8")
        size = index.stat().st_size
        entry = FileEntry(name=index.name, images=len(lines), size_bytes=size, sha256=sha256_of(index))
        parts[split] = SplitEntry(files=(entry,))
    manifest = DatasetManifest(
        format="folder",
        source=source.description,
        image_size=image_size,
        class_names=source.class_names,
        train=parts["train"],
        validation=parts["validation"],
    )
    write_dataset_manifest(data_dir, manifest)
    return manifest
