"""Weak scaling (paper, figure 6): score against accelerators, ideal line and efficiency.

A series without accelerators scales with its ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from analysis.output.figures.style import COLOURS, Drawing, draw
from analysis.results.source import RunResult


@dataclass(frozen=True, slots=True)
class ScalingRow:
    """One run of a series.

    `ideal_ops` is the smallest run's score times the ratio of accelerators, or of ranks if a run of
    the series has no accelerators.
    """

    replicas: int
    accelerators: int
    ranks: int | None
    score_ops: float
    regulated_score_ops: float
    error: float
    ideal_ops: float
    efficiency: float
    status: str
    origin: str


def scaling_rows(results: Sequence[RunResult]) -> tuple[ScalingRow, ...]:
    """The series by size; efficiency = score / ideal.

    Runs without a score are left out.
    """
    usable = [result for result in results if result.report.score_ops]
    measure = "accelerators" if all(result.report.accelerators for result in usable) else "ranks"
    usable = [result for result in usable if getattr(result.report, measure)]
    usable.sort(key=lambda result: (getattr(result.report, measure), result.report.replicas))
    rows: list[ScalingRow] = []
    for result in usable:
        report, smallest = result.report, usable[0].report
        score = report.score_ops or 0.0
        ideal = (smallest.score_ops or 0.0) / getattr(smallest, measure) * getattr(report, measure)
        rows.append(
            ScalingRow(
                report.replicas, report.accelerators, report.ranks, score, report.regulated_score_ops or 0.0,
                report.error, ideal, score / ideal, report.verdict, str(result.origin),
            )
        )  # fmt: skip
    return tuple(rows)


def scaling_frame(rows: Sequence[ScalingRow]) -> pd.DataFrame:
    """The series as a table."""
    return pd.DataFrame([asdict(row) for row in rows], columns=list(ScalingRow.__dataclass_fields__))


def scaling_chart(rows: Sequence[ScalingRow]) -> Drawing:
    """Score against accelerators (or ranks) on the left, efficiency on the right."""
    measure = "accelerators" if all(row.accelerators for row in rows) else "ranks"

    def paint(figure: Any) -> None:
        left = figure.subplots()
        sizes = [getattr(row, measure) for row in rows]
        left.plot(sizes, [row.ideal_ops for row in rows], "--", color=COLOURS[2], label="ideal")
        left.plot(sizes, [row.score_ops for row in rows], "o-", color=COLOURS[0], label="score")
        left.set(xlabel=measure, ylabel="score (OPS)", xlim=(0, None), ylim=(0, None))
        left.legend(loc="upper left")
        right = left.twinx()
        right.plot(sizes, [100 * row.efficiency for row in rows], "s:", color=COLOURS[1], markersize=4)
        right.set_ylabel("efficiency (%)", color=COLOURS[1])
        right.set_ylim(0, 110)
        right.grid(visible=False)

    caption = f"Weak scaling: score against {measure}, and efficiency relative to the smallest run."
    return draw("scaling", caption, paint)
