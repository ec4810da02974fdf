"""The description of a directory of scientific data, from everything in its files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from aiperf.config.dataset_manifest import SPLITS, Split
from aiperf.config.fingerprints import overall_fingerprint
from aiperf.errors import DatasetError
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
from workloads.datasets.prepare import Progress
from workloads.datasets.science.pool import each

MOST_SHOWN = 20
"""Problems of files that cannot be described."""

Names = Mapping[Split, Sequence[str]]


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
    """Read all of these files; findings by name."""
    jobs = [_Job(data_dir, name, form) for name in names]
    return dict(zip(names, each(_examine, jobs, workers, report, _lost), strict=True))


def recognised(data_dir: Path) -> tuple[str, Names] | None:
    """The format of a directory's files, and their names; None if it has no scientific data.

    The format is that whose layout the first file has.
    """
    for form in FORMATS:
        names = FORMATS.load(form).find(data_dir)
        if all(names[split] for split in SPLITS) and _opens(data_dir / names["train"][0], form):
            return form, names
    return None


def _opens(path: Path, form: str) -> bool:
    try:
        FORMATS.load(form).open(path).close()
    except (DatasetError, OSError):
        return False
    return True


def describe(data_dir: Path, report: Progress, workers: int) -> ScienceManifest:
    """Write dataset.json for files that others made.

    Raises DatasetError if they are no scientific data, or damaged.
    """
    found = recognised(data_dir)
    if found is None:
        raise DatasetError(f"{data_dir}: holds no files of a known format, or the first one is damaged")
    form, names = found
    return write_description(data_dir, form, names, ("files made elsewhere", None), report, workers)


def write_description(data_dir: Path, form: str, names: Names, origin: tuple[str, Generated | None],
                      report: Progress, workers: int) -> ScienceManifest:  # fmt: skip
    """Read the files and write dataset.json. Raises DatasetError naming what is wrong with them.

    `origin` are words, and the generator if there was one. A description of the same files keeps
    its own.
    """
    findings = examine_all(data_dir, [name for split in SPLITS for name in names[split]], form, workers, report)
    problems = [problem for found in findings.values() for problem in found.problems]
    problems += grid_problems(findings)
    if problems:
        rest = len(problems) - MOST_SHOWN
        more = [f"and {rest} more"] if rest > 0 else []
        raise DatasetError(f"{data_dir}: cannot be described:", *problems[:MOST_SHOWN], *more)
    science = FORMATS.load(form).science
    splits = {split: _split(names[split], findings) for split in SPLITS}
    fingerprint = overall_fingerprint(*(splits[split].fingerprint for split in SPLITS))
    assert fingerprint is not None
    source, generated = _known_origin(data_dir, fingerprint) or origin
    first = findings[names["train"][0]].layout
    assert first is not None
    manifest = ScienceManifest(
        format=cast(Any, form),  # pydantic checks it
        source=source,
        generated=generated,
        grid=first.grid,
        channels=channels_of([findings[name] for name in names["train"]], science),
        train=splits["train"],
        validation=splits["validation"],
        fingerprint=fingerprint,
    )
    write_science_manifest(data_dir, manifest)
    return manifest


def grid_problems(findings: Mapping[str, FileFindings]) -> list[str]:
    """Files whose grid is not that of the first one."""
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


def _known_origin(data_dir: Path, fingerprint: str) -> tuple[str, Generated | None] | None:
    try:
        manifest = read_science_manifest(data_dir)
    except DatasetError:
        return None
    return (manifest.source, manifest.generated) if manifest.fingerprint == fingerprint else None
