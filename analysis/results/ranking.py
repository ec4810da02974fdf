"""A ranking over many runs: official ones in order, unofficial and invalid ones apart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Literal

import pandas as pd

from analysis.report.model import Report
from analysis.results.source import RunResult

Order = Literal["score", "regulated", "accelerator"]

ORDERS: dict[Order, str] = {
    "score": "score_ops",
    "regulated": "regulated_score_ops",
    "accelerator": "ops_per_accelerator",
}
"""Sort keys of a ranking, each with its column."""

VERDICT_ORDER = ("official", "unofficial", "invalid")


@dataclass(frozen=True, slots=True)
class Row:
    """One run. `rank` is for official runs. `source`: recomputed from records, or as reported.

    An invalid run has no score, whatever its report says.
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


@dataclass(frozen=True)
class Ranking:
    """Rows in order: official by rank, then unofficial, then invalid ones.

    `problems`: paths that hold no result.
    """

    order: Order
    rows: tuple[Row, ...]
    problems: tuple[str, ...] = ()

    def with_status(self, status: str) -> tuple[Row, ...]:
        """The rows of one status."""
        return tuple(row for row in self.rows if row.status == status)

    def frame(self) -> pd.DataFrame:
        """All rows as a table."""
        table = pd.DataFrame([asdict(row) for row in self.rows], columns=list(Row.__dataclass_fields__))
        return table.astype({"rank": "Int64"})


def rank(results: Iterable[RunResult], order: Order, problems: Iterable[str] = ()) -> Ranking:
    """Sort results; equal ones share a rank."""
    rows = [_row(result) for result in results]
    rows.sort(key=lambda row: (VERDICT_ORDER.index(row.status), -(_key(row, order)), row.system, row.origin))
    ranked: list[Row] = []
    for place, row in enumerate(rows, start=1):
        if row.status == "official":
            same = ranked and _key(ranked[-1], order) == _key(row, order)
            row = _with_rank(row, ranked[-1].rank if same else place)  # noqa: PLW2901
        ranked.append(row)
    return Ranking(order, tuple(ranked), tuple(problems))


def _key(row: Row, order: Order) -> float:
    return float(getattr(row, ORDERS[order]) or 0.0)


def _with_rank(row: Row, number: int | None) -> Row:
    return Row(**{**asdict(row), "rank": number})


def _row(result: RunResult) -> Row:
    report: Report = result.report
    if report.verdict == "invalid":
        report = report.model_copy(update={"score_ops": None, "regulated_score_ops": None})
    return Row(
        rank=None,
        system=report.name,
        replicas=report.replicas,
        accelerators=report.accelerators,
        ranks=report.ranks,
        score_ops=report.score_ops,
        regulated_score_ops=report.regulated_score_ops,
        error=report.error,
        ops_per_accelerator=report.ops_per_accelerator,
        operations_per_joule=report.energy.operations_per_joule,
        status=report.verdict,
        source="recomputed" if result.recomputed else "as reported",
        origin=str(result.origin),
        reasons=", ".join(violation.rule for violation in report.violations),
    )
