"""A ranking of scientific workloads: by time to quality, within one workload, framework and size.

Results of different ones are different benchmarks. There is no order over several workloads.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from math import inf

import pandas as pd

from aiperf.config.duration import format_duration
from analysis.results.copies import once
from analysis.results.ranking import STATUSES, system_name
from analysis.results.source import RunResult

Benchmark = tuple[str, str, str]
"""Workload, framework and size."""

MEASURES = ("time_to_quality_s", "epochs_to_quality", "energy_to_quality_j", "cost_to_quality", "sustained_ops")
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


def rank_workloads(results: Iterable[RunResult]) -> tuple[WorkloadRow, ...]:
    """The workloads of all runs of the suite, each benchmark by status and time, each run once.

    Official rows have ranks, equal times the same one.
    """
    kept, _ = once(
        results, [*STATUSES], lambda result: tuple(replace(row, origin="", system="") for row in _rows(result))
    )
    groups: dict[Benchmark, list[WorkloadRow]] = {}
    for result in kept:
        for row in _rows(result):
            groups.setdefault(row.benchmark, []).append(row)
    return tuple(row for _, rows in sorted(groups.items()) for row in _ranked(rows))


def _rows(result: RunResult) -> Iterable[WorkloadRow]:
    report = result.report
    for part in report.workloads:
        own = {name: getattr(part, name) for name in WorkloadRow.__dataclass_fields__ if hasattr(part, name)}
        if result.status in UNSCORED:
            own |= dict.fromkeys(MEASURES)
        yield WorkloadRow(
            rank=None, system=system_name(result), status=result.status, origin=str(result.origin),
            reasons=", ".join(violation.rule for violation in report.violations), **own,
        )  # fmt: skip


def _ranked(rows: list[WorkloadRow]) -> Iterable[WorkloadRow]:
    rows = sorted(rows, key=lambda row: ([*STATUSES].index(row.status), _time(row), row.system, row.origin))
    official = [_time(row) for row in rows if row.status == "official"]
    for row in rows:
        yield replace(row, rank=official.index(_time(row)) + 1) if row.status == "official" else row


def _time(row: WorkloadRow) -> float:
    return inf if row.time_to_quality_s is None else row.time_to_quality_s


def workload_frame(rows: Iterable[WorkloadRow]) -> pd.DataFrame:
    """All rows as a table."""
    table = pd.DataFrame([asdict(row) for row in rows], columns=list(WorkloadRow.__dataclass_fields__))
    return table.astype({"rank": "Int64"})
