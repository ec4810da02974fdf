"""The check of a directory of scientific data for problems."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from aiperf.config.dataset_manifest import MANIFEST_NAME, Split
from aiperf.untrusted.folders import files_below
from aiperf.untrusted.reading import shortened
from workloads.data.arrays import ENTRY_BYTES, entries_of
from workloads.data.examine import FileFindings, channels_of
from workloads.data.formats import FORMATS
from workloads.data.generators import GENERATOR_VERSION, GENERATORS
from workloads.data.manifest import ScienceManifest, fingerprint_of, read_science_manifest
from workloads.datasets.check import CheckResult, preparation_lines
from workloads.datasets.preparation import REPORT_NAME
from workloads.datasets.prepare import Progress
from workloads.datasets.science.describe import examine_all, grid_problems

LARGEST_DIFFERENCE = 1e-4
"""Largest difference of a statistic from that of the files, in standard deviations."""

NAMED = 5

Findings = Mapping[str, FileFindings]


def check(data_dir: Path, report: Progress, workers: int) -> CheckResult:
    """Read every sample; give all problems. Raises DatasetError without a description."""
    manifest = read_science_manifest(data_dir)
    names = [file.name for split in manifest.splits for file in manifest.split(split).files]
    findings = examine_all(data_dir, names, manifest.format, workers, report)
    problems = [problem for found in findings.values() for problem in found.problems]
    problems += grid_problems(findings)
    problems += _differences(manifest, findings)
    problems += _in_several(manifest, findings)
    if manifest.generated is not None:
        problems += _not_generated(manifest, findings)
    images: dict[Split, int] = {
        split: sum(len(findings[file.name].entries) // ENTRY_BYTES for file in manifest.split(split).files)
        for split in manifest.splits
    }
    said, wrong = preparation_lines(data_dir, manifest.fingerprint)
    return CheckResult(images, 0, (*problems, *wrong), (*_notes(findings), *said, *_strays(data_dir, names)))


def _notes(findings: Findings) -> Iterator[str]:
    for found in findings.values():
        yield from found.notes


def _differences(manifest: ScienceManifest, findings: Findings) -> Iterator[str]:
    """Yield the differences between the files and dataset.json."""
    for split in manifest.splits:
        for file in manifest.split(split).files:
            found = findings[file.name]
            if found.layout is None:
                continue
            if found.layout.samples != file.images:
                yield f"{file.name}: holds {found.layout.samples} samples, not {file.images}"
            if found.layout.grid != manifest.grid:
                yield f"{file.name}: has the grid {found.layout.grid}, not {manifest.grid}"
            if found.sha256 != file.sha256:
                yield f"{file.name}: its checksum is not that of {MANIFEST_NAME}: the file was changed or damaged"
        expected = manifest.split(split).fingerprint
        fingerprint = fingerprint_of(findings[file.name].entries for file in manifest.split(split).files)
        if fingerprint != expected:
            yield (
                f"{split}: the fingerprint of its samples is {fingerprint[:12]}, not {expected[:12]} "
                f"as in {MANIFEST_NAME}"
            )
    # Values that are missing or not finite would make other statistics.
    if not any(findings[file.name].problems for file in manifest.train.files):
        yield from _other_statistics(manifest, findings)


def _other_statistics(manifest: ScienceManifest, findings: Findings) -> Iterator[str]:
    science = FORMATS.load(manifest.format).science
    found = channels_of([findings[file.name] for file in manifest.train.files], science)
    if [channel.name for channel in found] != [channel.name for channel in manifest.channels]:
        yield f"{MANIFEST_NAME}: its channels are not {', '.join(channel.name for channel in found)}"
        return
    for channel, said in zip(found, manifest.channels, strict=True):
        for name in ("mean", "std", "log_mean", "log_std"):
            true, given = getattr(channel, name), getattr(said, name)
            scale = (channel.log_std if name.startswith("log") else channel.std) or 1.0
            if (true is None) != (given is None) or (
                true is not None and abs(true - given) > LARGEST_DIFFERENCE * scale
            ):
                yield f"{MANIFEST_NAME}: {channel.name} has {name} {given}, and the training files have {true}"


def _in_several(manifest: ScienceManifest, findings: Findings) -> Iterator[str]:
    """Yield lines about validation samples that are trained, and test samples that are known."""
    known: dict[bytes, str] = {}
    for split, words in zip(manifest.splits, ("training", "validation", "test"), strict=False):
        own = [
            (f"{file.name}, index {index}", entry)
            for file in manifest.split(split).files
            for index, entry in enumerate(_entries(findings[file.name]))
        ]
        for other in dict.fromkeys(known.values()):
            places = [place for place, entry in own if known.get(entry) == other]
            if places:
                yield f"{len(places)} {words} samples are {other} samples: {'; '.join(places[:NAMED])}"
        known |= {entry: words for _, entry in own if entry not in known}


def _not_generated(manifest: ScienceManifest, findings: Findings) -> Iterator[str]:
    """Yield the splits whose first sample is not that of the named generator."""
    generated = manifest.generated
    assert generated is not None
    if generated.name not in GENERATORS:
        yield f"{MANIFEST_NAME}: generator {shortened(generated.name, 40)!r} is not known"
        return
    # Samples of an earlier version cannot be made again, and are no worse for it.
    if generated.version != GENERATOR_VERSION:
        return
    generator = GENERATORS.load(generated.name)
    for split in manifest.splits:
        name = manifest.split(split).files[0].name
        entries = _entries(findings[name])
        if not 0 <= generated.seed < 1 << 63 or manifest.grid[0] not in generator.sizes or not entries:
            continue
        if entries[0] != entries_of(generator.rows(generated.seed, split, range(1), manifest.grid[0])):
            yield f"{name}, index 0: is not sample 0 of generator {generated.name} with seed {generated.seed}"


def _entries(found: FileFindings) -> list[bytes]:
    return [found.entries[start : start + ENTRY_BYTES] for start in range(0, len(found.entries), ENTRY_BYTES)]


def _strays(data_dir: Path, names: list[str]) -> Iterator[str]:
    """Yield notes on files of the directory that are in no split."""
    own = {MANIFEST_NAME, REPORT_NAME, *names}
    found = sorted(name for name in files_below(data_dir) if name not in own)
    yield from (f"{shortened(name)}: is part of no split" for name in found[:NAMED])
    if len(found) > NAMED:
        yield f"{data_dir}: and {len(found) - NAMED} more such files"
