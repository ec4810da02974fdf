"""The check of a directory of images for problems, and the description of one without any."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from aiperf.config.dataset_manifest import (
    MANIFEST_NAME,
    SPLITS,
    DatasetManifest,
    FileEntry,
    Split,
    read_dataset_manifest,
    read_index,
)
from aiperf.config.fingerprints import entries_name
from aiperf.errors import DatasetError
from aiperf.untrusted.folders import files_below, is_technical
from aiperf.untrusted.reading import shortened as shortened_text
from aiperf.untrusted.text import is_printable
from workloads.datasets.content import About, Contents, FileContent, fingerprint_problems, repetition, write_description
from workloads.datasets.examine import MOST_CLASSES, Findings, examine_folder, examine_shards, shortened
from workloads.datasets.preparation import REPORT_NAME, class_counts, read_preparation
from workloads.datasets.prepare import Progress
from workloads.datasets.shards import SHARD_PATTERN, sha256_of, shard_name
from workloads.datasets.sources import Place, open_folders

IMAGE_SIZE = 224
"""Trained crop of files that are described for the first time, unless it is given."""


CLASS_NAME = "class {}"
"""Name of a class that shards only number."""

MOST_SHOWN = 20
"""Most problems that the refusal of a description names."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The contents of a directory, all its problems, and notes on what need not be one."""

    images: dict[Split, int]
    classes: int
    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()


def check(data_dir: Path, report: Progress, workers: int) -> CheckResult:
    """Read every image; give all problems. Raises DatasetError without a description."""
    manifest = read_dataset_manifest(data_dir)
    look = _check_folder if manifest.format == "folder" else _check_shards
    contents, images, problems = look(data_dir, manifest, report, workers)
    strays, technical = _strays(data_dir, manifest)
    problems += shortened(str(data_dir), strays)
    problems += fingerprint_problems(data_dir, manifest, contents)
    repeated, notes = repetition(contents)
    problems += _technical_classes(manifest)
    notes += shortened(str(data_dir), technical)
    notes += shortened(str(data_dir), list(_shard_notes(manifest)))
    for line in class_notes(manifest, contents):
        # Shards made elsewhere may have labels with gaps; folders of classes are made of images.
        named = manifest.class_names[0] != CLASS_NAME.format(1)
        (problems if named and line.startswith("train") else notes).append(line)
    said, wrong = preparation_lines(data_dir, manifest.fingerprint)
    notes += said
    problems += wrong
    if manifest.fingerprint is None:
        notes.append(
            f"{MANIFEST_NAME} has no fingerprint; add it with: aiperf dataset check {data_dir} --write-manifest"
        )
    return CheckResult(images, len(manifest.class_names), (*problems, *repeated), tuple(notes))


def preparation_lines(data_dir: Path, fingerprint: str | None) -> tuple[list[str], list[str]]:
    """Give the notes of the report of the preparation, and what is wrong with it."""
    try:
        preparation = read_preparation(data_dir, fingerprint)
    except DatasetError as error:
        return [], [str(error)]
    return [f"{REPORT_NAME}: {line}" for line in (preparation.lines() if preparation else ())], []


_Look = tuple[Contents, dict[Split, int], list[str]]
"""Contents, images and problems of the files alone."""


def _check_shards(data_dir: Path, manifest: DatasetManifest, report: Progress, workers: int) -> _Look:
    problems = list(_file_problems(data_dir, manifest))
    present = {
        split: [entry for entry in manifest.split(split).files if (data_dir / entry.name).is_file()] for split in SPLITS
    }
    found = examine_shards([data_dir / entry.name for split in SPLITS for entry in present[split]], report, workers)
    for entry in (entry for split in SPLITS for entry in present[split]):
        problems += found[entry.name].problems
        problems += _differences(entry, found[entry.name], len(manifest.class_names))
    contents = {split: [found[entry.name].content for entry in present[split]] for split in SPLITS}
    images = {split: sum(content.entry.images for content in contents[split]) for split in SPLITS}
    return contents, images, problems


def _file_problems(data_dir: Path, manifest: DatasetManifest) -> Iterator[str]:
    listed = {entry.name for split in SPLITS for entry in manifest.split(split).files}
    for name in sorted(listed):
        if not (data_dir / name).is_file():
            yield f"{name}: is missing"
        match = SHARD_PATTERN.fullmatch(name)
        if match is None:
            yield f"{name}: is not a shard name such as train-00000-of-01024"
    for split in SPLITS:
        files = manifest.split(split).files
        if files and any(not entry.name.endswith(f"-of-{len(files):05d}") for entry in files):
            yield f"{split}: {len(files)} shards are listed, their names say otherwise"


def stray_files(data_dir: Path, manifest: DatasetManifest) -> tuple[str, ...]:
    """Lines about the files of the directory that are not part of the data set; of many, a few."""
    strays, technical = _strays(data_dir, manifest)
    return shortened(str(data_dir), [*strays, *technical])


def description_notes(data_dir: Path, manifest: DatasetManifest) -> tuple[str, ...]:
    """Lines about a directory that was just described: stray files, and labels without images."""
    contents = {
        split: [FileContent(manifest.split(split).files[0], (data_dir / entries_name(split)).read_bytes())]
        for split in SPLITS
    }
    empty = shortened(str(data_dir), list(_shard_notes(manifest)))
    return (*stray_files(data_dir, manifest), *empty, *class_notes(manifest, contents))


def _strays(data_dir: Path, manifest: DatasetManifest) -> tuple[list[str], list[str]]:
    """Lines about files that are not part of the data set: people's, and those of programs."""
    own = {MANIFEST_NAME, REPORT_NAME} | {entries_name(split) for split in SPLITS}
    own.update(entry.name for split in SPLITS for entry in manifest.split(split).files)
    if manifest.format == "folder":
        own.update(name for split in SPLITS for name, _ in read_index(data_dir, manifest, split))
    strays: list[str] = []
    technical: list[str] = []
    for name in sorted(name for name in files_below(data_dir, file_systems_own=True) if name not in own):
        lines = technical if any(map(is_technical, name.split("/"))) else strays
        lines.append(f"{shortened_text(name)}: does not belong to the data set")
    return strays, technical


def class_notes(manifest: DatasetManifest, contents: Contents) -> Iterator[str]:
    """Yield a line for each split that has classes without images: labels with gaps."""
    for split in SPLITS:
        counts = class_counts(contents, split)
        names = manifest.class_names
        empty = [name for label, name in enumerate(names, start=1) if not counts[label]]
        if empty:
            more = f" and {len(empty) - MOST_SHOWN} more" if len(empty) > MOST_SHOWN else ""
            few = ", ".join(map(shortened_text, empty[:MOST_SHOWN]))
            yield f"{split}: {len(empty)} of {len(names)} classes have no images: {few}{more}"


def _technical_classes(manifest: DatasetManifest) -> Iterator[str]:
    for label, name in enumerate(manifest.class_names, start=1):
        if is_technical(name):
            yield (
                f"class {label} is {shortened_text(name)!r}, the folder of a program, and no class of images: remove "
                "it from the source and prepare again"
            )


def _differences(entry: FileEntry, found: Findings, classes: int) -> Iterator[str]:
    if found.content.entry.images != entry.images:
        yield f"{entry.name}: holds {found.content.entry.images} images, not {entry.images}"
    if found.largest_label > classes:
        yield f"{entry.name}: has label {found.largest_label}, but there are {classes} classes"
    if found.content.entry.sha256 != entry.sha256:
        yield f"{entry.name}: its checksum is not that of {MANIFEST_NAME}: the file was changed or damaged"


def _check_folder(data_dir: Path, manifest: DatasetManifest, report: Progress, workers: int) -> _Look:
    problems: list[str] = []
    places: dict[Split, list[Place]] = {}
    for split in SPLITS:
        entry = manifest.split(split).files[0]
        rows = read_index(data_dir, manifest, split)
        if len(rows) != entry.images:
            problems.append(f"{entry.name}: lists {len(rows)} images, not {entry.images}")
        places[split] = [Place(name, label, data_dir / name) for name, label in rows]
    found = examine_folder(places, report, workers)
    problems += [problem for split in SPLITS for problem in found[split].problems]
    contents = {
        split: [FileContent(manifest.split(split).files[0], found[split].images, found[split].names)]
        for split in SPLITS
    }
    return contents, {split: len(places[split]) for split in SPLITS}, problems


def describe(data_dir: Path, image_size: int | None, report: Progress, workers: int) -> DatasetManifest:
    """Write dataset.json for files that other tools made: shards, or image folders.

    If there is one of the same files already, its source and class names are kept, and its image
    size unless another is given. Raises DatasetError if the files are neither, or are damaged.
    """
    shards = {split: sorted(data_dir.glob(f"{split}-?????-of-?????")) for split in SPLITS}
    if not any(shards.values()):
        return _describe_folder(data_dir, image_size, report, workers)
    missing = [line for split in SPLITS for line in _missing(split, shards[split])]
    if missing:
        raise DatasetError(f"{data_dir}: cannot be described: {'; '.join(shortened(str(data_dir), missing))}")
    found = examine_shards([path for split in SPLITS for path in shards[split]], report, workers)
    problems = [problem for findings in found.values() for problem in findings.problems]
    if problems:
        raise DatasetError(f"{data_dir}: cannot be described: {'; '.join(problems[:MOST_SHOWN])}")
    if empty := [split for split in SPLITS if not any(found[path.name].content.images for path in shards[split])]:
        raise DatasetError(f"{data_dir}: cannot be described: its {' and '.join(empty)} shards hold no images")
    classes = max(findings.largest_label for findings in found.values())
    contents = {split: [found[path.name].content for path in shards[split]] for split in SPLITS}
    if not 2 <= classes <= MOST_CLASSES:
        raise DatasetError(
            f"{data_dir}: cannot be described: its labels reach {classes}; they must be 1 to the number of classes, "
            f"which is 2 to {MOST_CLASSES:,}"
        )
    names = tuple(map(CLASS_NAME.format, range(1, classes + 1)))
    about = _known(data_dir, contents) or About("shards made elsewhere", IMAGE_SIZE, names)
    return write_description(data_dir, "tfrecord", _sized(about, image_size), contents)


def _missing(split: Split, shards: Sequence[Path]) -> Iterator[str]:
    """Yield lines about missing shards, whose numbers follow from the names of the others."""
    numbers: dict[int, set[int]] = {}
    for path in shards:
        match = SHARD_PATTERN.fullmatch(path.name)
        if match is not None:
            numbers.setdefault(int(match[3]), set()).add(int(match[2]))
    if not numbers:
        yield f"no {split} shards, such as {shard_name(split, 0, 1)}"
    if len(numbers) > 1:
        counts = " and ".join(f"{len(found)} of {count}" for count, found in sorted(numbers.items()))
        yield f"holds {split} shards of several sets ({counts}); one is wanted"
        return
    for count, present in numbers.items():
        yield from (f"{shard_name(split, n, count)} is missing" for n in range(min(count, 10**5)) if n not in present)
        beyond = [shard_name(split, number, count) for number in sorted(present) if number >= count]
        if beyond:
            yield f"{', '.join(beyond[:MOST_SHOWN])}: {count} shards have the numbers 0 to {count - 1}"
    yield from (
        f"{path.name} is {'a folder' if path.is_dir() else 'not a file'}" for path in shards if not path.is_file()
    )


def _shard_notes(manifest: DatasetManifest) -> Iterator[str]:
    """A line for each shard without images."""
    if manifest.format == "tfrecord":
        entries = (entry for split in SPLITS for entry in manifest.split(split).files)
        yield from (f"{entry.name}: holds no images" for entry in entries if not entry.images)


def _known(data_dir: Path, contents: Contents) -> About | None:
    """The facts of a description of these very files; None if there is none."""
    try:
        manifest = read_dataset_manifest(data_dir)
    except DatasetError:
        return None
    if any(manifest.split(split).files != tuple(file.entry for file in contents[split]) for split in SPLITS):
        return None
    return About(manifest.source, manifest.image_size, manifest.class_names)


def _sized(about: About, image_size: int | None) -> About:
    return about if image_size is None else About(about.source, image_size, about.class_names)


def _describe_folder(data_dir: Path, image_size: int | None, report: Progress, workers: int) -> DatasetManifest:
    source = open_folders(data_dir)
    places: dict[Split, list[Place]] = {
        split: [Place(str(p.path.relative_to(data_dir)), p.label, p.path) for p in source.places(split)]
        for split in SPLITS
    }
    found = examine_folder(places, report, workers)
    problems = [problem for split in SPLITS for problem in found[split].problems]
    problems += [
        f"{shortened_text(place.name)}: has control characters, or is not UTF-8"
        for split in SPLITS
        for place in places[split]
        if not is_printable(place.name)
    ]
    if problems:
        raise DatasetError(f"{data_dir}: cannot be described: {'; '.join(problems[:MOST_SHOWN])}")
    contents: dict[Split, list[FileContent]] = {}
    for split in SPLITS:
        index = data_dir / f"{split}.index"
        index.write_text("".join(f"{place.name}\t{place.label}\n" for place in places[split]), encoding="utf-8")
        size = index.stat().st_size
        entry = FileEntry(name=index.name, images=len(places[split]), size_bytes=size, sha256=sha256_of(index))
        contents[split] = [FileContent(entry, found[split].images, found[split].names)]
    about = _known(data_dir, contents) or About(source.description, IMAGE_SIZE, source.class_names)
    return write_description(data_dir, "folder", _sized(about, image_size), contents)
