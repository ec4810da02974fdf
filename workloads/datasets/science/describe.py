"""The description of a directory of scientific data, from all of its files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from aiperf.config.dataset_manifest import SPLITS, Split
from aiperf.config.fingerprints import overall_fingerprint
from aiperf.errors import DatasetError
from aiperf.untrusted.recognition import described_file
from workloads.data.examine import FileFindings, channels_of, examine_file
from workloads.data.formats import FORMATS
from workloads.data.manifest import (
    Generated,
    ScienceFile,
    ScienceManifest,
    ScienceSplit,
    fingerprint_of,
    read_science_manifest,
    write_science_manifest,
)
from workloads.datasets.layouts import WANTED, found_in
from workloads.datasets.prepare import Progress
from workloads.datasets.science.pool import each

MOST_SHOWN = 20
"""Most problems that the refusal of a description names."""

Names = Mapping[Split, Sequence[str]]
"""Names of the files of each split; one without files is left out."""


@dataclass(frozen=True, slots=True)
class _Job:
    """One file to read."""

    data_dir: Path
    name: str
    form: str


def _examine(job: _Job) -> FileFindings:
    return examine_file(job.data_dir, job.name, job.form)


def _lost(job: _Job) -> FileFindings:
    return FileFindings(None, b"", None, None, 0, "", (f"{job.name}: the library that reads it ended its process",))


def examine_all(
    data_dir: Path, names: Sequence[str], form: str, workers: int, report: Progress
) -> dict[str, FileFindings]:
    """Read all of these files; give findings by name."""
    jobs = [_Job(data_dir, name, form) for name in names]
    return dict(zip(names, each(_examine, jobs, workers, report, _lost), strict=True))


def recognised(data_dir: Path) -> tuple[str, Names] | None:
    """The format of a directory's files, and their names; None if it has no scientific data.

    The format is that whose layout the first file has.
    """
    for form in FORMATS:
        names = FORMATS.load(form).find(data_dir)
        if all(names[split] for split in SPLITS) and not _reasons(data_dir / names["train"][0], form):
            return form, {split: found for split, found in names.items() if found}
    return None


def refusals(data_dir: Path) -> tuple[str, ...]:
    """The reasons why files with the names of a format are not of it; empty if no names fit.

    Names may fit several formats: the reasons are those of the one that lacks the fewest fields.
    """
    found: list[tuple[int, str, list[str]]] = []
    for form in FORMATS:
        names = FORMATS.load(form).find(data_dir)
        files = [data_dir / name for found_names in names.values() for name in found_names]
        if not files:
            continue
        empty = [split for split in SPLITS if not names[split]]
        reasons = _reasons(files[0], form)
        reasons += [f"{data_dir}: has no {split} files of the format {form}" for split in empty]
        lacking = sum(reason.endswith("is missing") or "lacks" in reason for reason in reasons)
        found.append((lacking + len(empty), form, reasons))
    if not found:
        return ()
    _, form, reasons = min(found)
    said = "; ".join(line.removeprefix(f"{data_dir}/") for line in reasons[:MOST_SHOWN])
    return (f"{data_dir}: its files have names of the format {form}, but {said}",)


def _reasons(path: Path, form: str) -> list[str]:
    """The reasons why a file is not of a format."""
    try:
        FORMATS.load(form).open(path).close()
    except DatasetError as error:
        found = described_file(path)
        if form != "cosmoflow-tfrecord" and found != "an HDF5 file":
            return [f"{path.name} is {found}, and an HDF5 file is wanted"]
        return list(error.lines)
    except OSError as error:
        return [f"{path.name}: {error.strerror or error}"]
    return []


def describe(data_dir: Path, report: Progress, workers: int, notes: list[str] | None = None) -> ScienceManifest:
    """Write dataset.json for files that were made elsewhere.

    `notes` takes what is unusual but need not be wrong. Raises DatasetError if the files are not
    scientific data, or damaged.
    """
    found = recognised(data_dir)
    if found is None:
        raise DatasetError(*refusals(data_dir) or (f"{data_dir}: {found_in(data_dir)}; {WANTED}",))
    form, names = found
    findings = _examined(data_dir, form, names, report, workers)
    if notes is not None:
        notes += [note for finding in findings.values() for note in finding.notes]
    return _written(data_dir, form, names, ("files made elsewhere", None), findings)


def write_description(
    data_dir: Path, form: str, names: Names, origin: tuple[str, Generated | None], report: Progress, workers: int
) -> ScienceManifest:
    """Read the files and write dataset.json. Raises DatasetError naming their problems.

    `origin` are words, and the generator if there was one. A description of the same files keeps
    its own.
    """
    return _written(data_dir, form, names, origin, _examined(data_dir, form, names, report, workers))


def _examined(data_dir: Path, form: str, names: Names, report: Progress, workers: int) -> dict[str, FileFindings]:
    findings = examine_all(data_dir, [name for found in names.values() for name in found], form, workers, report)
    problems = [problem for found in findings.values() for problem in found.problems]
    problems += grid_problems(findings)
    if problems:
        rest = len(problems) - MOST_SHOWN
        more = [f"and {rest} more"] if rest > 0 else []
        raise DatasetError(f"{data_dir}: cannot be described:", *problems[:MOST_SHOWN], *more)
    return findings


def _written(
    data_dir: Path, form: str, names: Names, origin: tuple[str, Generated | None], findings: Mapping[str, FileFindings]
) -> ScienceManifest:
    science = FORMATS.load(form).science
    splits = {split: _split(own, findings) for split, own in names.items()}
    train, validation, test = splits["train"], splits["validation"], splits.get("test")
    tested = () if test is None else (test.fingerprint,)
    fingerprint = overall_fingerprint(train.fingerprint, validation.fingerprint, *tested)
    assert fingerprint is not None
    source, generated = _known_origin(data_dir, train, validation) or origin
    first = findings[names["train"][0]].layout
    assert first is not None
    manifest = ScienceManifest(
        format=cast(Any, form),  # pydantic checks it
        source=source,
        generated=generated,
        grid=first.grid,
        channels=channels_of([findings[name] for name in names["train"]], science),
        train=train,
        validation=validation,
        test=test,
        fingerprint=fingerprint,
    )
    write_science_manifest(data_dir, manifest)
    return manifest


def grid_problems(findings: Mapping[str, FileFindings]) -> list[str]:
    """Lines about files whose grid is not that of the first one."""
    grids = {name: found.layout.grid for name, found in findings.items() if found.layout is not None}
    first = next(iter(grids.values()), ())
    return [f"{name}: has the grid {grid}, and others {first}" for name, grid in grids.items() if grid != first]


def _split(names: Sequence[str], findings: Mapping[str, FileFindings]) -> ScienceSplit:
    files = []
    for name in names:
        found = findings[name]
        assert found.layout is not None
        files.append(
            ScienceFile(name=name, images=found.layout.samples, size_bytes=found.size_bytes, sha256=found.sha256)
        )
    return ScienceSplit(files=tuple(files), fingerprint=fingerprint_of(findings[name].entries for name in names))


def _known_origin(data_dir: Path, train: ScienceSplit, validation: ScienceSplit) -> tuple[str, Generated | None] | None:
    """The origin of samples that are described again, also with another test split."""
    try:
        manifest = read_science_manifest(data_dir)
    except DatasetError:
        return None
    same = (manifest.train.fingerprint, manifest.validation.fingerprint) == (train.fingerprint, validation.fingerprint)
    return (manifest.source, manifest.generated) if same else None
