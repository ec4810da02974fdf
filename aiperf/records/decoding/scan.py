"""The most frequent lines of a history, reports of progress and beginnings of phases, as numbers.

A long run has millions of them. They are recognised byte for byte as `encode_record` writes them;
every other line is for `aiperf.records.record.decode_record`.
"""

from __future__ import annotations

import re
import zlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Self, get_args

from aiperf.clock import parse_utc
from aiperf.ranges import LAST_MS
from aiperf.wire.messages import Phase

PHASES: tuple[str, ...] = get_args(Phase)

_LINE = re.compile(
    rb'\{"version":([12]),"writer":"([\w-]+)","sequence":(\d+),"time":"'
    rb'(?:(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(\d{3})Z|([\dT:.Z-]{24}))",'
    rb'"monotonic_ms":(-?\d+),"data"'
    rb'(?::\{"type":"p(?:rogress","trial":(\d{1,15}),"epoch":(\d{1,15}),"images_trained":(\d{1,15}),'
    rb'"images_evaluated":(\d{1,15})|hase","replica":(0|[1-9]\d{0,5}),"trial":(null|0|[1-9]\d{0,8}),'
    rb'"phase":"(' + "|".join(PHASES).encode() + rb')")\}'
    rb'(,"previous":"[0-9a-f]{64}")?,"crc32":"([0-9a-f]{8})"\}\Z)?'
)
"""The beginning of a line as `encode_record` writes it; the rest only of progress and phases."""

_TAIL_BYTES = len(b',"crc32":"01234567"}')
_CODES = {phase.encode(): code for code, phase in enumerate(PHASES)}

Head = tuple[int, int, int]
"""Sequence number, UTC milliseconds and monotonic milliseconds of a line."""

Report = tuple[int, tuple[int, int, int]]
"""Of progress: the trial, and `ProgressFacts.position`."""

PhaseRow = tuple[int, int, int]
"""Replica, trial (-1: none), place in `PHASES`."""

PhaseMoment = tuple[int, str, int | None]
"""UTC milliseconds on the writer's clock, phase, trial."""

Scanned = tuple[Head, Report | None, PhaseRow | None]
"""The head of a line, and what it says if it is one of both."""


class Scanner:
    """Scans the lines of one writer's file."""

    def __init__(self, writer: str) -> None:
        self._writer = writer.encode()
        self._seconds: dict[bytes, int] = {}
        """Milliseconds of the seconds that came before: most have several lines."""

    def scan(self, line: bytes) -> Scanned | None:
        """The head of a line without its newline, and what it says if that is read here.

        None if the line does not begin as `encode_record` writes it, or has no such time. A report
        of progress and a phase have the checksum that they carry; a phase is one that
        `decode_record` accepts as this writer's.
        """
        found = _LINE.match(line)
        if found is None:
            return None
        (version, writer, sequence, second, fraction, time, monotonic, trial, epoch, trained, evaluated,
         replica, trial_of_phase, phase, previous, checksum) = found.groups()  # fmt: skip
        try:
            if second is None:
                time_ms = parse_utc(time.decode())
            elif (known := self._seconds.get(second)) is not None:
                time_ms = known + int(fraction)
            else:
                self._seconds[second] = parse_utc(f"{second.decode()}.000Z")
                time_ms = self._seconds[second] + int(fraction)
            head = int(sequence), time_ms, int(monotonic)
        except ValueError:  # also of a number with thousands of digits
            return None
        if checksum is None or zlib.crc32(line[:-_TAIL_BYTES]) != int(checksum, 16):
            return head, None, None
        if trial is not None:
            return head, (int(trial), (int(epoch), int(trained), int(evaluated))), None
        usual = (
            writer == self._writer
            and (previous is not None) == (version == b"2")
            and _is_number(sequence, head[0])
            and _is_number(monotonic.removeprefix(b"-"), abs(head[2]))
            and 0 <= time_ms <= LAST_MS
        )
        if not usual:
            return head, None, None
        return head, None, (int(replica), -1 if trial_of_phase == b"null" else int(trial_of_phase), _CODES[phase])


def _is_number(digits: bytes, value: int) -> bool:
    """True if a number is in the range of a time or sequence number, without a zero before it."""
    return value <= LAST_MS and (len(digits) == 1 or not digits.startswith(b"0"))


@dataclass(frozen=True, slots=True)
class PhaseColumns:
    """Beginnings of phases of one writer in the order of its file: one row each, no objects.

    Times are UTC milliseconds on the writer's clock. `trials` is -1 between trials; `phases` are
    places in `PHASES`.
    """

    sequences: Sequence[int] = field(default_factory=lambda: array("q"))
    times_ms: Sequence[int] = field(default_factory=lambda: array("q"))
    replicas: Sequence[int] = field(default_factory=lambda: array("i"))
    trials: Sequence[int] = field(default_factory=lambda: array("i"))
    phases: Sequence[int] = field(default_factory=lambda: array("b"))

    @classmethod
    def of(cls, rows: Sequence[tuple[Head, PhaseRow]]) -> Self:
        """The columns of scanned lines."""
        return cls(
            array("q", [head[0] for head, _ in rows]),
            array("q", [head[1] for head, _ in rows]),
            array("i", [row[0] for _, row in rows]),
            array("i", [row[1] for _, row in rows]),
            array("b", [row[2] for _, row in rows]),
        )

    def up_to(self, limit: float) -> Self:
        """The rows whose sequence number is at most `limit`."""
        kept = [place for place, sequence in enumerate(self.sequences) if sequence <= limit]
        return self if len(kept) == len(self) else self._only(kept)

    def of_replica(self, replica: int) -> Self:
        """The rows of one replica."""
        kept = [place for place, number in enumerate(self.replicas) if number == replica]
        return self if len(kept) == len(self) else self._only(kept)

    def moments(self) -> Iterator[PhaseMoment]:
        """Every row as time, phase and trial."""
        for time_ms, phase, trial in zip(self.times_ms, self.phases, self.trials, strict=True):
            yield time_ms, PHASES[phase], None if trial < 0 else trial

    def _only(self, places: Sequence[int]) -> Self:
        columns = (self.sequences, self.times_ms, self.replicas, self.trials, self.phases)
        codes = ("q", "q", "i", "i", "b")
        return type(self)(*(array(code, [column[place] for place in places])
                            for code, column in zip(codes, columns, strict=True)))  # fmt: skip

    def __len__(self) -> int:
        return len(self.sequences)
