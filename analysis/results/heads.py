"""Heads of a run as they arrived at a referee, next to its records: does anything date it?

Times in records are the submitter's. A head that a referee had at some time stands for records that
were made before, so that heads of the release and of the end bound the time between them. The
referee's file has a line for each: the time of arrival (ISO 8601 with its zone), then the line that
the run printed, perhaps with other words around it:

    2026-05-01T12:00:07Z head 0.1 h: primary-1 record 412 sha256 9f3c...
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from aiperf.config.duration import format_duration
from aiperf.errors import AiperfError, UsageError
from aiperf.records.chain import hash_of
from aiperf.records.history_files import read_from
from aiperf.records.record import decode_record
from aiperf.run_directory.recorded_files import unnamed_files
from aiperf.untrusted.reading import MIB, read_bounded
from analysis.reading.run_data import RunData

SPREAD_MS = 300_000
"""Largest difference between the delays of heads, by which a run may be longer than it says."""

GAP_MS = 1_800_000
"""Longest time between two heads that arrived: records in between could be made up until then."""

MOST_BYTES = 64 * MIB

_HEAD = re.compile(r"head [^:]{1,20}: (primary-\d{1,9}) record (\d{1,9}) sha256 ([0-9a-f]{64})\b")
_TIME = re.compile(r"\s*(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d))\s")


@dataclass(frozen=True, slots=True)
class Arrival:
    """A head as it arrived: number and SHA-256 of a record of a primary."""

    writer: str
    sequence: int
    digest: str
    arrived_ms: int | None
    """UTC; None: the line has no time."""


@dataclass(frozen=True, slots=True)
class Dating:
    """The judgement of a run's times by its heads; `reason` says why they date it or do not."""

    dated: bool
    reason: str

    @property
    def words(self) -> str:
        """Both in words."""
        return f"{'dated' if self.dated else 'not dated'}: {self.reason}"


NOT_ASKED = Dating(False, "no heads were given (--heads FILE)")


def read_arrivals(file: Path) -> list[Arrival]:
    """The heads in a referee's file; other lines are left out. Raises UsageError if it has none."""
    try:
        text = read_bounded(file, MOST_BYTES).decode(errors="replace")
    except AiperfError as error:
        raise UsageError(str(error)) from None
    found = [
        Arrival(match[1], int(match[2]), match[3], _time_of(line))
        for line in text.splitlines()
        if (match := _HEAD.search(line)) is not None
    ]
    if not found:
        raise UsageError(
            f"{file} has no line with a head, such as: TIME head 0.1 h: primary-1 record 412 sha256 9f3c..."
        )
    return found


def _time_of(line: str) -> int | None:
    match = _TIME.match(line)
    try:
        return round(datetime.fromisoformat(match[1]).timestamp() * 1000) if match is not None else None
    except (ValueError, OverflowError):
        return None


def dating_of(data: RunData, arrivals: Sequence[Arrival]) -> Dating:
    """Judge a run by the heads of a referee, which may be of several runs. Raises OSError."""
    released, ended = data.ledger.released, data.ledger.run_ended
    if released is None or ended is None:
        return Dating(False, "the run has no release or no end")
    if unnamed := unnamed_files(data.paths, ended.body.files):
        return Dating(False, f"no head stands for {unnamed[0]}, which the record of the end does not name")
    times = _times_by_record(data, arrivals)
    own = [arrival for arrival in arrivals if (arrival.writer, arrival.sequence, arrival.digest) in times]
    if not own:
        return Dating(False, "none of the heads is one of these records")
    delays = _first_arrivals(
        (times[each.writer, each.sequence, each.digest], each.arrived_ms) for each in own if each.arrived_ms is not None
    )
    if not delays:
        return Dating(False, "the heads have no times of arrival")
    resumed = [resumption.time_ms for resumption in data.ledger.resumptions]
    if problem := _problem(delays, released.time_ms, ended.time_ms, resumed):
        return Dating(False, problem)
    return Dating(True, f"{len(delays)} heads, delays within {format_duration(_spread_ms(delays) / 1000)}")


Delay = tuple[int, int]
"""Time of a record and of the arrival of its head."""


def _first_arrivals(delays: Iterable[Delay]) -> list[Delay]:
    """The first arrival of each record, by record: a copy may come at any time."""
    first: dict[int, int] = {}
    for made_ms, came_ms in delays:
        first[made_ms] = min(came_ms, first.get(made_ms, came_ms))
    return sorted(first.items())


def _spread_ms(delays: Iterable[Delay]) -> int:
    late = [came_ms - made_ms for made_ms, came_ms in delays]
    return max(late) - min(late)


def _problem(delays: Sequence[Delay], released_ms: int, ended_ms: int, resumed_ms: Sequence[int]) -> str:
    """The reason why these heads do not date a run; empty if they do."""
    made = [time_ms for time_ms, _ in delays]
    if made[0] > released_ms + SPREAD_MS:
        return "no head of its first minutes arrived"
    if made[-1] < ended_ms:
        return "no head of its end arrived"
    for before, after in pairwise(made):
        # While no primary was there, there was no head.
        if after - before > GAP_MS and not any(before < time_ms <= after for time_ms in resumed_ms):
            return f"no head arrived for {format_duration((after - before) / 1000)} of it"
    if (spread_ms := _spread_ms(delays)) > SPREAD_MS:
        return (
            f"the heads did not arrive at the pace of the records: delays differ by "
            f"{format_duration(spread_ms / 1000)} (allowed: {format_duration(SPREAD_MS / 1000)})"
        )
    return ""


def _times_by_record(data: RunData, arrivals: Iterable[Arrival]) -> Mapping[tuple[str, int, str], int]:
    """The time of each record that a head stands for, if the head is that of the record."""
    found: dict[tuple[str, int, str], int] = {}
    wanted: dict[str, set[int]] = {}
    for arrival in arrivals:
        wanted.setdefault(arrival.writer, set()).add(arrival.sequence)
    for file in data.paths.history_files("primary"):
        # What follows the last newline is a record that was not written to its end.
        lines = read_from(file).split(b"\n")[:-1] if file.stem in wanted else []
        for number in wanted.get(file.stem, ()):
            if number < len(lines):
                try:
                    found[file.stem, number, hash_of(lines[number])] = decode_record(lines[number]).time_ms
                except AiperfError:
                    continue  # a damage, which the run is invalid for
    return found
