"""A ranking of scientific workloads, within one workload, framework and size.

By time to quality, or by valid operations per second (HPC AI500 v2), also per watt.

Results of different ones are different benchmarks. There is no order over several workloads.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from math import inf
from typing import Literal

import pandas as pd

from aiperf.config.duration import format_duration
from analysis.results.copies import contest, names_to_look_at, once
from analysis.results.ranking import COPIED, STATUSES, first_rival, system_name
from analysis.results.source import RunResult

Benchmark = tuple[str, str, str]
"""Workload, framework and size."""

ScienceOrder = Literal["time", "valid", "valid-per-watt"]

SCIENCE_ORDERS: dict[ScienceOrder, str] = {
    "time": "time_to_quality_s",
    "valid": "valid_ops",
    "valid-per-watt": "valid_operations_per_joule",
}
"""Sort keys, each with its column; less time is better, more of the others."""

MEASURES = (
    "time_to_quality_s",
    "time_to_quality_low_s",
    "time_to_quality_high_s",
    "epochs_to_quality",
    "energy_to_quality_j",
    "cost_to_quality",
    "sustained_ops",
    "valid_ops",
    "valid_ops_low",
    "valid_ops_high",
    "valid_operations_per_joule",
)
"""Measures of a workload, which a run has only with a verdict that is not invalid."""

UNSCORED = ("invalid", "running")
"""Statuses of runs without measures, as without a score in the other suite."""


@dataclass(frozen=True, slots=True)
class WorkloadRow:
    """One workload of one run. `rank` is for official runs."""

    rank: int | None
    workload: str
    framework: str
    size: str
    system: str
    reached: int
    instances: int
    time_to_quality_s: float | None
    epochs_to_quality: float | None
    energy_to_quality_j: float | None
    cost_to_quality: float | None
    sustained_ops: float | None
    status: str
    origin: str
    reasons: str
    time_to_quality_low_s: float | None = None
    time_to_quality_high_s: float | None = None
    """Interval of the median, 95 %."""
    valid_ops: float | None = None
    valid_ops_low: float | None = None
    valid_ops_high: float | None = None
    valid_operations_per_joule: float | None = None
    failures: int | None = None
    """Failures of the run, of all of its workloads, as in `ranking.Row`."""
    contested: str = ""
    """Other results that have parts of this one, as in `ranking.Row`."""

    @property
    def time_text(self) -> str:
        """The time to quality in words; an invalid run has none, whatever it claims."""
        if self.time_to_quality_s is not None:
            return format_duration(self.time_to_quality_s)
        return "-" if self.status in UNSCORED else "not reached"

    @property
    def benchmark(self) -> Benchmark:
        """Benchmark within which the run may be compared."""
        return self.workload, self.framework, self.size


def rank_workloads(results: Iterable[RunResult], order: ScienceOrder = "time") -> tuple[WorkloadRow, ...]:
    """The workloads of all runs of the suite, each benchmark by status and order, each run once.

    Official rows with the measure have ranks, equal ones the same. Results with parts of one run
    are one for the ranks of others.
    """
    kept, _ = _once(results)
    found = contest(kept)
    groups: dict[Benchmark, list[WorkloadRow]] = {}
    for place, result in enumerate(kept):
        contested = ", ".join(sorted(str(kept[rival].origin) for rival in found.rivals.get(place, ())))
        for row in _rows(result):
            own = replace(row, contested=contested)
            if place in found.refused:
                own = replace(own, status="unofficial", reasons=", ".join(filter(None, [own.reasons, COPIED])))
            groups.setdefault(own.benchmark, []).append(own)
    rivals = {str(kept[place].origin): first_rival(place, found.rivals) for place in range(len(kept))}
    return tuple(row for _, rows in sorted(groups.items()) for row in _ranked(rows, order, rivals))


def look_at_workloads(results: Iterable[RunResult]) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """Results that are the same run as another one, and conflicts in words, as in `Ranking`."""
    kept, same = _once(results)
    return tuple(same), (*contest(kept).words, *names_to_look_at(kept))


def _once(results: Iterable[RunResult]) -> tuple[list[RunResult], list[tuple[str, str]]]:
    return once(results, [*STATUSES], lambda result: tuple(replace(row, origin="", system="") for row in _rows(result)))


def _rows(result: RunResult) -> Iterable[WorkloadRow]:
    report = result.report
    for part in report.workloads:
        own = {name: getattr(part, name) for name in WorkloadRow.__dataclass_fields__ if hasattr(part, name)}
        if result.status in UNSCORED:
            own |= dict.fromkeys(MEASURES)
        yield WorkloadRow(
            rank=None,
            system=system_name(result),
            status=result.status,
            origin=str(result.origin),
            reasons=", ".join(violation.rule for violation in report.violations),
            failures=report.counts.failures if report.counts is not None else None,
            **own,
        )


def _ranked(rows: list[WorkloadRow], order: ScienceOrder, rivals: Mapping[str, int]) -> Iterable[WorkloadRow]:
    def place(row: WorkloadRow) -> float:
        value: float | None = getattr(row, SCIENCE_ORDERS[order])
        return inf if value is None else value if order == "time" else -value

    rows = sorted(rows, key=lambda row: ([*STATUSES].index(row.status), place(row), row.system, row.origin))
    official = [(place(row), rivals[row.origin]) for row in rows if row.status == "official"]
    for row in rows:
        above = {number for value, number in official if value < place(row)} - {rivals[row.origin]}
        # An official run reached its target: only energy may be unknown, and then it has no rank.
        ranked = row.status == "official" and (order == "time" or place(row) < inf)
        yield replace(row, rank=1 + len(above)) if ranked else row


def workload_frame(rows: Iterable[WorkloadRow]) -> pd.DataFrame:
    """All rows as a table."""
    table = pd.DataFrame([asdict(row) for row in rows], columns=list(WorkloadRow.__dataclass_fields__))
    return table.astype({"rank": "Int64"})
