"""A ranking over many runs: official ones in order; unofficial, invalid and unverified ones apart.

A run is ranked once, whichever of its copies are given. Several runs of one system are one row:
that of the median run, of an even number the lower of the two in the middle. A system is a name
with its numbers of replicas, accelerators and ranks, its models of devices, its configuration, and
whoever signed it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import pandas as pd

from aiperf.config.sections.run import RunSection
from aiperf.run_directory.paths import RunPaths
from analysis.output.page.machine import Hardware, hardware_of
from analysis.report.estimates import IntervalPart
from analysis.report.model import Report
from analysis.results.source import RunResult

Order = Literal["score", "regulated", "accelerator", "energy"]

ORDERS: dict[Order, str] = {
    "score": "score_ops",
    "regulated": "regulated_score_ops",
    "accelerator": "ops_per_accelerator",
    "energy": "operations_per_joule",
}
"""Sort keys of a ranking, each with its column."""

MOST_SHARED = 0.05
"""Upper limit for the part of an interval that shares ranks, on each side, relative to the measure.

Few or unequal replicas make it as wide as the measure itself. A run that is known that badly would
share its rank with runs of many times its score.
"""

STATUSES = {
    "official": "Official",
    "unofficial": "Unofficial",
    "invalid": "Invalid",
    "running": "Running: no result yet",
    "simulated": "Simulated: nothing was trained",
    "unverified": "Unverified: a report without its records proves nothing; rank its run directory or archive",
}
"""Headings of the parts of a ranking, in order."""


@dataclass(frozen=True, slots=True)
class Row:
    """One system: its median run. `rank` is for official runs.

    `source`: recomputed from records, or as reported. An invalid run has no score, whatever its
    report says. The interval (95 %) is that of the measure that the ranking is by.
    """

    rank: int | None
    system: str
    replicas: int
    accelerators: int
    ranks: int | None
    score_ops: float | None
    regulated_score_ops: float | None
    error: float
    ops_per_accelerator: float | None
    operations_per_joule: float | None
    status: str
    source: str
    origin: str
    reasons: str
    interval_low: float | None = None
    interval_high: float | None = None
    runs: int = 1
    """Runs of the system."""
    others: str = ""
    """The other runs of the system, separated by commas."""
    name: str = ""
    """`run.name`. Runs that kept the default one have the name of their hosts as `system`."""
    nodes: int | None = None
    processor: str = ""
    accelerator: str = ""
    """Models; empty if they are unknown."""
    started: str | None = None
    """Time of the release: ISO 8601, UTC."""
    run: str = ""
    """Name of the run directory, archive or file."""
    page: str | None = None
    """Path of the report's page, if there is one."""
    replicas_asked: int | None = None
    """Replicas that the configuration asks for; `replicas` took part."""


@dataclass(frozen=True)
class Ranking:
    """Rows in order: official by rank, then unofficial, invalid and unverified ones.

    `problems`: paths that hold no result. `same`: results that are the same run as an earlier one,
    as pairs of both paths.
    """

    order: Order
    rows: tuple[Row, ...]
    problems: tuple[str, ...] = ()
    same: tuple[tuple[str, str], ...] = ()

    def with_status(self, status: str) -> tuple[Row, ...]:
        """The rows of one status."""
        return tuple(row for row in self.rows if row.status == status)

    def frame(self) -> pd.DataFrame:
        """All rows as a table."""
        table = pd.DataFrame([asdict(row) for row in self.rows], columns=list(Row.__dataclass_fields__))
        return table.astype({"rank": "Int64"})


def rank(results: Iterable[RunResult], order: Order, problems: Iterable[str] = ()) -> Ranking:
    """Sort results. Official ones whose intervals overlap that of the first of a rank share it."""
    kept, same = once(results)
    groups: dict[str, list[RunResult]] = {}
    for result in kept:
        groups.setdefault(_system(result), []).append(result)
    rows = [_median(group, order) for group in groups.values()]
    rows.sort(key=lambda row: ([*STATUSES].index(row.status), -_key(row, order), row.system, row.origin))
    return Ranking(order, tuple(_ranked(rows, order)), tuple(problems), tuple(same))


def once(results: Iterable[RunResult]) -> tuple[list[RunResult], list[tuple[str, str]]]:
    """One result of each run, and the others, each with the one that was kept.

    It is the first of those with the best status: a damaged copy does not take the run's place.
    """
    found = list(results)
    best: dict[str, RunResult] = {}
    for result in sorted(found, key=lambda result: [*STATUSES].index(result.status)):
        if result.identity is not None:
            best.setdefault(result.identity, result)
    kept = [result for result in found if result.identity is None or best[result.identity] is result]
    others = [result for result in found if result.identity is not None and best[result.identity] is not result]
    return kept, [(str(result.origin), str(best[result.identity or ""].origin)) for result in others]


def _system(result: RunResult) -> str:
    """A text that runs of one system have in common. Runs without a score stand for themselves."""
    report = result.report
    if result.status not in ("official", "unofficial"):
        return str(result.origin)
    devices = sorted(part.name for part in report.physics.devices) if report.physics is not None else []
    size = (report.present, report.accelerators, report.ranks)
    parts = [result.status, result.signer, system_name(result), *size, devices, report.configuration]
    return json.dumps(parts, sort_keys=True)


def system_name(result: RunResult, hardware: Hardware | None = None) -> str:
    """The name of the run, of its machine if that is the default one, or else of its directory."""
    if result.report.name != RunSection.model_fields["name"].default:
        return result.report.name
    found = hardware or hardware_of(result.report)
    return found.name or _folder(result.origin).name.removesuffix(".tar.gz").removesuffix(".json")


def _folder(origin: Path) -> Path:
    """The run directory of a result; an archive or a report elsewhere stands for itself."""
    origin = origin.absolute()
    return origin.parent.parent if (origin.parent.name, origin.name) == ("report", "report.json") else origin


def _page(origin: Path) -> str | None:
    """The page next to a report.json, or in the run directory."""
    folder = origin.parent if origin.name == "report.json" else RunPaths(origin).report
    page = folder / "report.html"
    return str(page) if page.is_file() else None


def _median(group: Sequence[RunResult], order: Order) -> Row:
    rows = sorted((_row(result, order) for result in group), key=lambda row: (_key(row, order), row.origin))
    # Of an even number the lower one: a mean of two would be the result of no run.
    middle = rows[(len(rows) - 1) // 2]
    others = ", ".join(row.origin for row in rows if row is not middle)
    return replace(middle, runs=len(rows), others=others)


def _ranked(rows: Iterable[Row], order: Order) -> Iterable[Row]:
    """Competition ranking: rows are compared with the first of a rank, not one with the next."""
    first: Row | None = None
    for place, row in enumerate(rows, start=1):
        if row.status != "official" or getattr(row, ORDERS[order]) is None:
            yield row
            continue
        if first is None or not _level(first, row, order):
            # Compared with the first of a rank, since overlaps are not transitive: a chain of
            # neighbours could join the best with the worst.
            first = replace(row, rank=place)
        yield replace(row, rank=first.rank)


def _level(first: Row, row: Row, order: Order) -> bool:
    """True if a row that is not above the first cannot be distinguished from it."""
    if _key(first, order) == _key(row, order):
        return True
    low, high = first.interval_low, row.interval_high
    if low is None or high is None:
        return False
    low, high = max(low, _key(first, order) * (1 - MOST_SHARED)), min(high, _key(row, order) * (1 + MOST_SHARED))
    return high >= low


def _key(row: Row, order: Order) -> float:
    return float(getattr(row, ORDERS[order]) or 0.0)


def _row(result: RunResult, order: Order) -> Row:
    report = result.scored
    interval, hardware = _interval(report, order), hardware_of(report)
    return Row(
        rank=None,
        system=system_name(result, hardware),
        replicas=report.present,
        replicas_asked=report.replicas,
        accelerators=report.accelerators,
        ranks=report.ranks,
        score_ops=report.score_ops,
        regulated_score_ops=report.regulated_score_ops,
        error=report.error,
        ops_per_accelerator=report.ops_per_accelerator,
        operations_per_joule=report.energy.operations_per_joule,
        status=result.status,
        source="recomputed" if result.recomputed else "as reported",
        origin=str(result.origin),
        reasons=", ".join(
            [*(violation.rule for violation in report.violations), *["replay"] * bool(result.contradictions)]
        ),
        interval_low=interval[0],
        interval_high=interval[1],
        name=report.name,
        nodes=hardware.nodes,
        processor=hardware.processor,
        accelerator=hardware.accelerator,
        started=report.started,
        run=_folder(result.origin).name,
        page=_page(result.origin),
    )


def _interval(report: Report, order: Order) -> tuple[float | None, float | None]:
    """The interval of the measure that the ranking is by; of energy none is known."""
    part: IntervalPart | None = None
    if order != "energy" and report.statistics is not None and report.score_ops is not None:
        part = report.statistics.regulated_score_ops if order == "regulated" else report.statistics.score_ops
    if part is None or part.low is None or part.high is None:
        return None, None
    share = report.accelerators if order == "accelerator" else 1
    return (part.low / share, part.high / share) if share else (None, None)
