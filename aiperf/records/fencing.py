"""Fencing: records that do not count, by what the primaries record.

A primary that resumes a run records how far it has read every file (`RunResumed.until`). If the one
before it still works, which claims prevent as far as a shared file system allows, then everything
that it and its replicas record from there on is left out: their work is lost, and the run is not.
Positions decide, so that no two clocks are compared.

A primary closes the trial of a replica that it has given up, and hands the trial on. A node that is
cut off from the primary and not from the storage works on meanwhile: what its agent records more
than `CLOCK_TOLERANCE_MS` later is left out, by a successor of the primary, too.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from aiperf.errors import RecordDamagedError
from aiperf.records.bodies import JobIssued, ReplicaReady, RunEnded, RunResumed, TrialClosed
from aiperf.records.cursor import parse_cursor
from aiperf.records.record import Record

CLOCK_TOLERANCE_MS = 10_000
"""Tolerance by which the corrected clock of a replica may be off the primary's.

An offset is measured to half a round trip of the pipe, seconds on an overloaded node, and drifts by
up to 50 millionths, two seconds in twelve hours, without a time service.
"""

PRIMARY = "primary-"
TRIALS_LEFT_OUT = 1000
"""Numbers of trials that a successor leaves to a primary that may still issue some.

Two trials of one number would share files.
"""


def reading_order(writer: str) -> tuple[bool, int, str]:
    """A sort key: primaries first, the last one before the others, since it says what counts."""
    return not writer.startswith(PRIMARY), -_start_of(writer), writer


def _start_of(writer: str) -> int:
    number = writer.rpartition("-")[2]
    # Other users of the directory may make files of any name, and `int` refuses texts of more than
    # 4,300 digits.
    known = writer.startswith(PRIMARY) and number.isdecimal() and len(number) < 10
    return int(number) if known else 0


_LEARNT = frozenset({JobIssued, RunResumed, ReplicaReady, TrialClosed, RunEnded})
"""The kinds of records that say what counts."""


@dataclass(frozen=True, slots=True)
class _Successor:
    """The first record of a primary that resumes."""

    rank: tuple[int, int]
    """Number of the claim, then of the file: the higher one supersedes the lower."""
    until: dict[str, int]


@dataclass
class Fences:
    """The records of each writer that count. Learn all primaries' files before asking."""

    claim: int = 0
    """The highest number of a primary's claim, also of one that is superseded."""
    last_trial: int = 0
    """The highest number that a trial of this run has, or may have: none is used again."""
    _successors: dict[str, _Successor] = field(default_factory=dict)
    """Successor of each primary."""
    _owners: dict[str, dict[str, int]] = field(default_factory=dict)
    """Primaries that found a replica's writer ready, each with the first record that says so."""
    _given_up: dict[str, set[tuple[str, int, int]]] = field(default_factory=dict)
    """Closings of a writer's trials as lost: the primary, and its record with its time."""
    _ended_ms: dict[str, int] = field(default_factory=dict)
    """The end of the run by each primary: what it closes then is given to nobody else."""
    _offsets_ms: dict[str, int] = field(default_factory=dict)
    """The clock of each writer minus the primary's."""
    _limits: dict[str, float] = field(default_factory=dict)
    """Answers that were given since the last record was learnt."""

    def learn(self, records: Iterable[Record]) -> None:
        """Take in what primaries record of each other and of their replicas."""
        for record in records:
            body = record.body
            if type(body) not in _LEARNT:
                continue
            # Also of records that do not count: a superseded primary's trials have files under
            # their numbers.
            if isinstance(body, JobIssued):
                self.last_trial = max(self.last_trial, body.trial)
            if isinstance(body, JobIssued | RunResumed):
                self.claim = max(self.claim, body.claim or 0)
            # Only as the first record of a file: a primary resumes before it does anything else. A
            # later one is forged, and could cut off work that counts.
            if isinstance(body, RunResumed) and body.until is not None and record.sequence == 0:
                self._limits.clear()
                rank = (body.claim or 0, _start_of(record.writer))
                self._successors[record.writer] = _Successor(rank, _parsed(body.until))
            elif isinstance(body, ReplicaReady) and record.writer.startswith(PRIMARY):
                self._limits.clear()
                owners = self._owners.setdefault(body.writer, {})
                owners[record.writer] = min(record.sequence, owners.get(record.writer, record.sequence))
                self._offsets_ms[body.writer] = body.clock_offset_ms
            elif isinstance(body, RunEnded):
                self._ended_ms[record.writer] = body.end_ms
            elif isinstance(body, TrialClosed) and body.how == "lost":
                closing = record.writer, record.sequence, record.time_ms
                self._given_up.setdefault(body.writer, set()).add(closing)

    def leave_trials_out(self) -> None:
        """Leave numbers of trials to a primary that may still be at work."""
        self.last_trial += TRIALS_LEFT_OUT

    def drops(self, record: Record) -> bool:
        """True if a record does not count."""
        # A run that was never resumed has no fences, and millions of records.
        fenced = bool(self._successors) and record.sequence > self.limit(record.writer)
        return fenced or self.is_late(record)

    def is_late(self, record: Record) -> bool:
        """True if a replica recorded this after its loss, and no successor has read it."""
        return bool(self._given_up) and record.time_ms > self.until_ms(record.writer)

    def until_ms(self, writer: str) -> float:
        """The last time, on a replica's clock, whose records may count; infinite if all may."""
        closings = self._given_up.get(writer)
        # What a successor has read counts up to there: it has resumed the run by that.
        if closings is None or self.limit(writer) != float("inf"):
            return float("inf")
        counted = [
            time_ms
            for primary, sequence, time_ms in closings
            if sequence <= self.limit(primary) and time_ms < self._ended_ms.get(primary, float("inf"))
        ]
        return min(counted, default=float("inf")) + CLOCK_TOLERANCE_MS + self._offsets_ms.get(writer, 0)

    def limit(self, writer: str) -> float:
        """The last record of a writer that counts; infinite if all do, -1 if none does."""
        if writer not in self._limits:
            self._limits[writer] = self._limit(writer)
        return self._limits[writer]

    def named(self, writer: str) -> bool:
        """True if any primary, superseded or not, found this writer ready."""
        return writer in self._owners

    def _in_force(self) -> list[tuple[str, _Successor]]:
        """The last successor first. One whose first record was not seen by a later one is none."""
        # A primary that a later one has not seen had lost its claim before it wrote: the later one
        # resumed without it, so it must not cut off any writer.
        found: list[tuple[str, _Successor]] = []
        for name, item in sorted(self._successors.items(), key=lambda pair: pair[1].rank, reverse=True):
            if all(name in later.until for _, later in found):
                found.append((name, item))
        return found

    def _limit(self, writer: str) -> float:
        if writer.startswith(PRIMARY):
            return self._limit_of_primary(writer)
        owners = self._owners.get(writer)
        # No primary has found it ready, perhaps because the one that had lost its last records:
        # what every successor saw of the file counts.
        if owners is None:
            seen = [item.until[writer] for _, item in self._in_force() if writer in item.until]
            return min(seen, default=float("inf"))
        # A forged second owner can only make less of the file count, never more.
        return min(self._limit_of_replica(writer, primary, said) for primary, said in owners.items())

    def _limit_of_primary(self, writer: str) -> float:
        own = self._successors.get(writer)
        rank = own.rank if own is not None else (0, _start_of(writer))
        # A file that a successor did not see is not in its cursor: nothing of it counts.
        cuts = (item.until.get(writer, -1) for _, item in self._in_force() if item.rank > rank)
        return min(cuts, default=float("inf"))

    def _limit_of_replica(self, writer: str, primary: str, said: int) -> float:
        """Find the limit by one primary that found the replica ready with its record `said`."""
        # The record that names the replica was dropped itself: no primary in force has found it
        # ready.
        if said > self.limit(primary):
            return -1
        own = self._successors.get(primary)
        rank = own.rank if own is not None else (0, _start_of(primary))
        cuts = (item.until.get(writer, -1) for _, item in self._in_force() if item.rank > rank)
        return min(cuts, default=float("inf"))


def _parsed(until: str) -> dict[str, int]:
    """The places of a cursor; none if it is not one, which the checks report."""
    try:
        return parse_cursor(until)
    except RecordDamagedError:
        # Nothing of earlier primaries counts then: damage never makes more of a run count.
        return {}
