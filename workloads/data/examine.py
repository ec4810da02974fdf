"""The examination of a file of samples: its problems, and the contents for a description."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from aiperf.errors import DatasetError
from workloads.data.arrays import Moments, Rows, Spreads, entries_of
from workloads.data.formats import FORMATS, FileLayout, OpenFile
from workloads.data.generators import cosmology, hep, weather
from workloads.data.manifest import Channel

BLOCK_BYTES = 32 << 20
"""Bytes of samples that are read at a time."""

NAMED_PROBLEMS = 5
"""Number of problems of a kind that are named in a file; the others are counted."""

CHANNEL_NAMES = {"hep": hep.CHANNELS, "ewa": weather.CHANNELS, "cos": cosmology.CHANNELS}

FAR, IMPOSSIBLE = 300.0, 10_000.0
"""Distances in standard deviations at which a value is noted, and at which it is a problem.

Single energies of collisions reach hundreds; a fill value that is not known reaches more.
"""

DIGITS = 7
"""Significant digits of the statistics, fewer than those on which two orders of summation agree."""


@dataclass(frozen=True, slots=True)
class FileFindings:
    """The contents and problems of one file; without a layout if it cannot be opened."""

    layout: FileLayout | None
    entries: bytes
    """Entries of the samples that can be read, in order."""
    moments: Moments | None
    log_moments: Moments | None
    """Moments of log(1 + x); None unless the values are counts."""
    size_bytes: int
    sha256: str
    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """Notes on what need not be wrong: values that are far from all others."""


def examine_file(data_dir: Path, name: str, form: str) -> FileFindings:
    """Read all of a file."""
    path = data_dir / name
    try:
        size, digest = path.stat().st_size, sha256_of(path)
        opened = FORMATS.load(form).open(path)
    except OSError as error:
        return FileFindings(None, b"", None, None, 0, "", (f"{name}: {error.strerror or error}",))
    except DatasetError as error:
        return FileFindings(
            None, b"", None, None, size, digest, shortened(name, [_without(line, path) for line in error.lines])
        )
    science = FORMATS.load(form).science
    problems: list[str] = []
    entries = bytearray()
    moments: list[Moments | None] = [None, None]
    spreads: list[Spreads] = []
    try:
        for start, rows in blocks(opened, problems):
            with np.errstate(invalid="ignore", over="ignore"):
                problems += opened.problems(start, rows)
                entries += entries_of(rows)
                moments = [_joined(old, new) for old, new in zip(moments, _moments(rows, science), strict=True)]
                if rows[0].dtype.kind == "f":
                    spreads.append(Spreads.of(rows[0], _channel_axis(science)))
    finally:
        opened.close()
    notes: list[str] = []
    if spreads and not problems:  # the samples that can be read are those of the file, by number
        for distance, line in _far_off(Spreads.together(spreads), science):
            (problems if distance > IMPOSSIBLE else notes).append(line)
    return FileFindings(
        opened.layout,
        bytes(entries),
        moments[0],
        moments[1],
        size,
        digest,
        shortened(name, problems),
        shortened(name, notes),
    )


def _far_off(spreads: Spreads, science: str) -> Iterator[tuple[float, str]]:
    distances = spreads.farthest()
    for index, channel in np.argwhere(distances > FAR):
        distance = float(distances[index, channel])
        value = max(spreads.largest[index, channel], spreads.least[index, channel], key=abs)
        yield (
            distance,
            (
                f"{CHANNEL_NAMES[science][channel]}, index {index}: has the value {value:g}, {distance:.3g} standard "
                "deviations from the others"
            ),
        )


def _channel_axis(science: str) -> int:
    return 1 if science == "ewa" else -1


def blocks(opened: OpenFile, problems: list[str]) -> Iterator[tuple[int, Rows]]:
    """Yield the samples of a file in blocks; those that cannot be read become `problems`."""
    total = opened.layout.samples
    start, count = 0, 1
    while start < total:
        stop = min(total, start + count)
        try:
            rows = opened.read(start, stop)
        except ValueError as error:
            # One of the block is damaged: they are read one by one until it is found.
            if stop - start > 1:
                count = 1
                continue
            problems.append(str(error))
        else:
            yield start, rows
            # Behind a damaged sample it begins with one again, and grows up to the size in memory.
            count = max(1, min(2 * count, BLOCK_BYTES // max(1, rows[0].nbytes // len(rows[0]))))
        start = stop


def channels_of(findings: Sequence[FileFindings], science: str) -> tuple[Channel, ...]:
    """The statistics of the channels over all files, in order."""
    plain, logarithm = (_all([getattr(found, name) for found in findings]) for name in ("moments", "log_moments"))
    assert plain is not None
    channels = []
    for number, name in enumerate(CHANNEL_NAMES[science]):
        mean, std = _rounded(plain.mean[number]), _rounded(plain.deviation[number])
        if logarithm is None:
            channels.append(Channel(name=name, mean=mean, std=std))
            continue
        log_mean, log_std = _rounded(logarithm.mean[number]), _rounded(logarithm.deviation[number])
        channels.append(Channel(name=name, mean=mean, std=std, log_mean=log_mean, log_std=log_std))
    return tuple(channels)


def shortened(name: str, problems: Sequence[str]) -> tuple[str, ...]:
    """A few problems of each kind, each with the file's name, and the number of the others."""
    seen: Counter[str] = Counter()
    shown = []
    for problem in problems:
        kind = re.sub(r"\d+", "", problem)
        seen[kind] += 1
        if seen[kind] <= NAMED_PROBLEMS:
            shown.append(f"{name}: {problem}")
    rest = len(problems) - len(shown)
    return (*shown, *((f"{name}: and {rest} more problems",) if rest else ()))


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file. Raises OSError."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _without(line: str, path: Path) -> str:
    """Strip the file's name from a problem, which is put before it anyway."""
    return line.removeprefix(f"{path}: ").removeprefix(f"{path.name}: ")


def _moments(rows: Rows, science: str) -> tuple[Moments, Moments | None]:
    inputs = rows[0]
    if science == "cos":
        return Moments.of(inputs, -1), Moments.of(np.log1p(np.maximum(inputs, 0), dtype=np.float64), -1)
    return Moments.of(inputs, _channel_axis(science)), None


def _joined(old: Moments | None, new: Moments | None) -> Moments | None:
    return new if old is None or new is None else old.joined(new)


def _all(parts: Sequence[Moments | None]) -> Moments | None:
    total: Moments | None = None
    for part in parts:
        total = _joined(total, part)
    return total


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
