"""The editions of a list: which results each has, in what order."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from analysis.results.ranking import ORDERS, STATUSES, Order, Ranking, rank
from analysis.results.science import SCIENCE_ORDERS, ScienceOrder, WorkloadRow, look_at_workloads, rank_workloads
from analysis.results.source import RunResult
from referee.listing.judging import Listed
from referee.listing.submissions import NEXT, Problem, Withdrawn, day_of

MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)


def title_of(edition: str) -> str:
    """The title of an edition: June 2026, 15 June 2026, or Next edition."""
    day = day_of(edition)
    if day is None:
        return "Next edition"
    month = f"{MONTHS[day.month - 1]} {day.year}"
    return f"{day.day} {month}" if len(edition) > 7 else month


@dataclass(frozen=True)
class Edition:
    """The results that count on one day, and what else was sent since the edition before."""

    name: str
    listed: tuple[Listed, ...]
    problems: tuple[Problem, ...]
    withdrawn: tuple[tuple[Listed, Withdrawn], ...]
    again: tuple[tuple[str, str], ...] = ()
    """Archives of runs that an earlier edition has, each with the archive that counts."""

    @property
    def same(self) -> tuple[tuple[str, str], ...]:
        """Archives of a run that another archive counts for, each with that one."""
        return (*self.again, *self.rankings["score"].same, *self._of_workloads[0])

    @property
    def conflicts(self) -> tuple[str, ...]:
        """Results that claim parts of one run, and names that can be taken for others, in words."""
        return (*self.rankings["score"].conflicts, *self._of_workloads[1])

    @property
    def title(self) -> str:
        """The title, such as June 2026."""
        return title_of(self.name)

    @cached_property
    def rankings(self) -> Mapping[Order, Ranking]:
        """The AutoML results by each measure."""
        results = [each.result for each in self.listed if not each.result.report.is_science]
        return {order: rank(results, order) for order in ORDERS}

    @cached_property
    def workloads(self) -> tuple[WorkloadRow, ...]:
        """The scientific workloads, by time to quality."""
        return self.workloads_by["time"]

    @cached_property
    def workloads_by(self) -> Mapping[ScienceOrder, tuple[WorkloadRow, ...]]:
        """The scientific workloads by each measure."""
        return {order: rank_workloads(self._science, order) for order in SCIENCE_ORDERS}

    @property
    def _science(self) -> list[RunResult]:
        return [each.result for each in self.listed if each.result.report.is_science]

    @cached_property
    def _of_workloads(self) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
        return look_at_workloads(self._science)


def editions_of(listed: Sequence[Listed], problems: Sequence[Problem], withdrawn: Iterable[Withdrawn]) -> list[Edition]:
    """The editions in order of time, the next one last.

    `listed` is in the order of editions. An edition has, of each system, the results of the latest
    edition up to it in which the system had an official one, or else of the latest at all; and
    whatever was sent for it. A withdrawn archive counts in no edition. A run that is sent again
    later does not count again, unless its status is better: anybody can send copies.
    """
    taken_back = {item.archive: item for item in withdrawn}
    counting, again = _first_of_each_run(each for each in listed if each.submission.place not in taken_back)
    back = [(each, taken_back[each.submission.place]) for each in listed if each.submission.place in taken_back]
    names = sorted({each.submission.edition for each in listed} | {each.edition for each in problems})
    return [
        Edition(
            name,
            tuple(_in_force(counting, name)),
            tuple(each for each in problems if each.edition == name),
            tuple(pair for pair in back if pair[0].submission.edition == name),
            tuple((str(each.result.origin), kept) for each, kept in again if each.submission.edition == name),
        )
        for name in names or [NEXT]
    ]


def _first_of_each_run(listed: Iterable[Listed]) -> tuple[list[Listed], list[tuple[Listed, str]]]:
    """The archives that count, and copies of runs of earlier editions with the archive that does.

    Copies within an edition are left to the ranking.
    """
    first: dict[str, Listed] = {}
    counting, again = list[Listed](), list[tuple[Listed, str]]()
    for each in listed:
        identity = each.result.identity
        known = None if identity is None else first.get(identity)
        better = known is None or _place(each) < _place(known)
        if known is not None and not better and known.submission.edition != each.submission.edition:
            again.append((each, str(known.result.origin)))
            continue
        counting.append(each)
        if identity is not None and better:
            first[identity] = each
    return counting, again


def _place(listed: Listed) -> int:
    return [*STATUSES].index(listed.result.status)


def _in_force(listed: Sequence[Listed], name: str) -> Iterable[Listed]:
    best: dict[tuple[str, str, str], tuple[bool, str]] = {}
    until = [each for each in listed if each.submission.edition <= name]
    for each in until:
        own = (each.result.status == "official", each.submission.edition)
        best[each.system] = max(best.get(each.system, own), own)
    for each in until:
        official, edition = best[each.system]
        is_best = (each.result.status == "official" or not official) and each.submission.edition == edition
        if is_best or each.submission.edition == name:
            yield each
