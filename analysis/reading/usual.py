"""The lines of a history file that is in every way as its writer leaves it, looked at all together.

Most files are: their lines are matched, hashed and compared in loops of libraries, several times
faster than one by one. Every other file is for the functions that look at each line and word what
they find (`analysis.reading.integrity.lines`); both find the same in a usual file.
"""

from __future__ import annotations

import re
import zlib
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiperf.clock import parse_utc
from aiperf.history.decoding.scan import PHASES, PhaseColumns
from aiperf.history.fencing import PRIMARY
from aiperf.history.ranges import LAST_MS

Numbers = NDArray[np.int64]

PIECE_BYTES = 1 << 22
"""Of a file, that are matched at a time: what is found takes several times as much memory."""

_NUMBER = rb"(0|[1-9]\d{0,14})"
_TAIL_BYTES = len(b',"crc32":"01234567"}')
_SECOND = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
_CODES = {phase.encode(): code for code, phase in enumerate(PHASES)}


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


def _pattern(writer: str) -> re.Pattern[bytes]:
    """A whole line of a writer, as `encode_record` writes it."""
    return re.compile(
        rb'^\{"version":2,"writer":"' + re.escape(writer.encode()) + rb'","sequence":' + _NUMBER + rb',"time":"'
        rb'([^"\n]{19})\.(\d{3})Z","monotonic_ms":(-?' + _NUMBER[1:] + rb',"data":\{'
        rb'(?:"type":"p(?:rogress","trial":' + _NUMBER + rb',"epoch":' + _NUMBER + rb',"images_trained":' + _NUMBER +
        rb',"images_evaluated":' + _NUMBER + rb'|hase","replica":(0|[1-9]\d{0,5}),"trial":(null|0|[1-9]\d{0,8}),'
        rb'"phase":"(' + "|".join(PHASES).encode() + rb')")|(?!"type":"p(?:rogress|hase)")[^\n]*)\}'
        rb',"previous":"([^"\n]{64})","crc32":"([0-9a-f]{8})"\}\n',
        re.MULTILINE,
    )  # fmt: skip


def usual_lines(data: bytes, writer: str, first_link: str, drift_ms: int, fall_ms: int) -> UsualLines | None:
    """The lines of a file without an unfinished one, or None if anything in it is not as usual.

    `first_link` is that of the first record. `drift_ms` and `fall_ms` are the most by which UTC
    minus the monotonic clock may change, and by which a record may be before an earlier one.
    """
    lines = data.split(b"\n")
    lines.pop()
    found = _matched(data, writer)
    if found is None or not lines or found.count != len(lines) or (found.phase_places and writer.startswith(PRIMARY)):
        return None
    hashes = [sha256(line).hexdigest() for line in lines]
    sums = np.fromiter((zlib.crc32(line[:-_TAIL_BYTES]) for line in lines), np.uint32, len(lines))
    times, monotonic = np.concatenate(found.times), np.concatenate(found.monotonic)
    anchors = times - monotonic
    usual = (
        "".join((first_link, *hashes[:-1])).encode() == b"".join(found.links)
        and np.array_equal(sums, _unhexed(found.checksums))
        and found.in_order()
        and _in_range(times, 0)
        and _in_range(monotonic, -LAST_MS)
        and np.abs(anchors - anchors[0]).max() <= drift_ms
        and (np.maximum.accumulate(times) - times).max() <= fall_ms
    )
    if not usual:
        return None
    progress = np.concatenate(found.progress)
    rows = np.column_stack([progress[:, :1], times[progress[:, 0]], progress[:, 1:]])
    return UsualLines(lines, hashes, rows, _phases(found, times), found.phase_places, int(anchors[0]))


def _matched(data: bytes, writer: str) -> _Found | None:
    """The lines that are as a writer's; None if there is a time that is none."""
    found, pattern, begin = _Found(), _pattern(writer), 0
    while begin < len(data):
        end = data.rfind(b"\n", begin, begin + PIECE_BYTES) + 1 or len(data)
        try:
            found.add(pattern.findall(data, begin, end))
        except ValueError:
            return None
        begin = end
    return found


class _Found:
    """What the pattern found in the lines so far, column by column."""

    def __init__(self) -> None:
        self.count = 0
        self.times: list[Numbers] = []
        self.monotonic: list[Numbers] = []
        self.sequences: list[Numbers] = []
        self.links: list[bytes] = []
        self.checksums: list[bytes] = []
        self.progress: list[Numbers] = []
        self.phase_places: list[int] = []
        self.phases: list[list[bytes]] = [[], [], []]

    def add(self, found: list[Any]) -> None:
        """Take in the next lines. Raises ValueError."""
        if not found:
            return
        sequences, seconds, fractions, monotonic, *_ = columns = list(zip(*found, strict=True))
        known = {second: _second_ms(second) for second in set(seconds)}
        self.times.append(_numbers(map(known.__getitem__, seconds)) + _numbers(map(int, fractions)))
        self.monotonic.append(_numbers(map(int, monotonic)))
        self.sequences.append(_numbers(map(int, sequences)))
        self.links += columns[-2]
        self.checksums += columns[-1]
        progress = [self._places(columns[4]), *(_numbers(map(int, filter(None, column))) for column in columns[4:8])]
        self.progress.append(np.column_stack(progress))
        self.phase_places += self._places(columns[10]).tolist()
        for own, values in zip(self.phases, columns[8:11], strict=True):
            own.extend(filter(None, values))
        self.count += len(found)

    def _places(self, column: tuple[bytes, ...]) -> Numbers:
        """The places of the lines in which a group was found: it matches no empty text."""
        return np.flatnonzero(_numbers(map(len, column))) + self.count

    def in_order(self) -> bool:
        """True if the records are numbered 0, 1, 2, ..."""
        return np.array_equal(np.concatenate(self.sequences), np.arange(self.count))


def _second_ms(second: bytes) -> int:
    """Milliseconds of a whole second. Raises ValueError if it is none."""
    if _SECOND.fullmatch(second) is None:
        raise ValueError(second)
    return parse_utc(f"{second.decode()}.000Z")


def _numbers(values: Iterable[int]) -> Numbers:
    return np.array(list(values), np.int64)


def _unhexed(texts: list[bytes]) -> NDArray[np.uint32]:
    return np.frombuffer(bytes.fromhex(b"".join(texts).decode()), ">u4").astype(np.uint32)


def _in_range(values: Numbers, least: int) -> bool:
    return bool(values.min() >= least and values.max() <= LAST_MS)


def _phases(found: _Found, times: Numbers) -> PhaseColumns:
    replicas, trials, phases = found.phases
    return PhaseColumns(
        array("q", found.phase_places),
        array("q", times[np.array(found.phase_places, np.int64)].tolist()),
        array("i", map(int, replicas)),
        array("i", [-1 if trial == b"null" else int(trial) for trial in trials]),
        array("b", map(_CODES.__getitem__, phases)),
    )
