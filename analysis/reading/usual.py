"""The lines of a history file that is in every way as its writer leaves it, looked at all together.

Most files are: their lines are matched, hashed and compared in loops of libraries, several times
faster than one by one. Every other file is for the functions that look at each line and word what
they find (`analysis.reading.integrity.lines`); both find the same in a usual file.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from aiperf.ranges import LAST_MS
from aiperf.records.decoding.scan import PhaseColumns
from aiperf.records.fencing import PRIMARY
from analysis.reading.columns import Bytes, Numbers, columns_of
from analysis.reading.integrity.heard.columns import WitnessColumns

_TAIL_BYTES = len(b',"crc32":"01234567"}')
_HEXADECIMAL = np.frombuffer(b"0123456789abcdef", np.uint8)
_SHIFTS = np.array((28, 24, 20, 16, 12, 8, 4, 0), np.uint32)


@dataclass(frozen=True, slots=True)
class UsualLines:
    """A file with the links, numbers, times and checksums that it should have.

    `lines` are without newlines. Times are UTC milliseconds on the writer's clock.
    """

    lines: list[bytes]
    hashes: list[str]
    progress: Numbers
    """A row for each report of progress: place of its line from 0, time, trial, epoch, and images
    trained and evaluated.
    """
    phases: PhaseColumns
    phase_places: Sequence[int]
    anchor_ms: int
    """UTC minus monotonic clock of the first record."""
    heads: Numbers
    """A row for each line: time, monotonic clock, and the place where the data begin."""
    witnesses: WitnessColumns
    epochs: Numbers
    """The places of the lines of completed epochs, from 0."""


def usual_lines(data: bytes, writer: str, first_link: str, drift_ms: int, fall_ms: int) -> UsualLines | None:
    """The lines of a file without an unfinished one, or None if anything in it is not as usual.

    `first_link` is that of the first record. `drift_ms` and `fall_ms` are the most by which UTC
    minus the monotonic clock may change, and by which a record may be before an earlier one.
    """
    lines = data.split(b"\n")
    lines.pop()
    found = columns_of(data, writer)
    if found is None or not lines:
        return None
    times, monotonic, phases = found.column("times"), found.column("monotonic"), found.column("phases")
    if len(times) != len(lines) or (len(phases) and writer.startswith(PRIMARY)):
        return None
    hashes = [sha256(line).hexdigest() for line in lines]
    sums = np.fromiter((zlib.crc32(line[:-_TAIL_BYTES]) for line in lines), np.uint32, len(lines))
    anchors = times - monotonic
    usual = (
        "".join((first_link, *hashes[:-1])).encode() == found.column("links").tobytes()
        and np.array_equal(_hexadecimal(sums), found.column("checksums"))
        and _in_range(times)
        and _in_range(monotonic)
        and np.abs(anchors - anchors[0]).max() <= drift_ms
        and (np.maximum.accumulate(times) - times).max() <= fall_ms
    )
    if not usual:
        return None
    heads = np.column_stack([times, monotonic, found.column("data")])
    progress = found.column("progress")
    rows = np.column_stack([progress[:, :1], times[progress[:, 0]], progress[:, 1:]])
    heard = found.column("witnesses")
    heard = np.column_stack([heard[:, :1], heads[heard[:, 0], :2], heard[:, 1:]])
    digests = np.ascontiguousarray(found.column("digests")).view("S64").ravel()
    return UsualLines(lines, hashes, rows, _phases(phases, times), phases[:, 0].tolist(), int(anchors[0]), heads,
                      WitnessColumns(heard, digests), found.column("epochs"))  # fmt: skip


def _hexadecimal(sums: NDArray[np.uint32]) -> Bytes:
    """The eight digits of each number, (n, 8)."""
    return np.asarray(_HEXADECIMAL[(sums[:, None] >> _SHIFTS) & 15], np.uint8)


def _in_range(values: Numbers) -> bool:
    return bool(values.min() >= 0 and values.max() <= LAST_MS)


def _phases(rows: Numbers, times: Numbers) -> PhaseColumns:
    places, replicas, trials, phases = rows.T
    return PhaseColumns(
        _array("q", places), _array("q", times[places]), _array("i", replicas), _array("i", trials), _array("b", phases)
    )


def _array(code: str, values: Numbers) -> array[int]:
    found = array(code)
    found.frombytes(values.astype(np.dtype(code)).tobytes())
    return found
