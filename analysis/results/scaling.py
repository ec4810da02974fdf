"""Weak scaling (paper, figure 6): score against accelerators, ideal line and efficiency."""

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

    `ideal_ops` is the smallest run's score times the ratio of accelerators.
    """

    replicas: int
    accelerators: int
    score_ops: float
    regulated_score_ops: float
    error: float
    ideal_ops: float
    efficiency: float
    status: str
    origin: str


def scaling_rows(results: Sequence[RunResult]) -> tuple[ScalingRow, ...]:
    """The series by accelerators; efficiency = score / ideal.

    Runs without accelerators or score are left out.
    """
    usable = [r for r in results if r.report.accelerators > 0 and r.report.score_ops]
    usable.sort(key=lambda result: (result.report.accelerators, result.report.replicas))
    rows: list[ScalingRow] = []
    for result in usable:
        report, smallest = result.report, usable[0].report
        score = report.score_ops or 0.0
        ideal = (smallest.score_ops or 0.0) / smallest.accelerators * report.accelerators
        rows.append(
            ScalingRow(
                report.replicas, report.accelerators, score, report.regulated_score_ops or 0.0, report.error,
                ideal, score / ideal, report.verdict, str(result.origin),
            )
        )  # fmt: skip
    return tuple(rows)


def scaling_frame(rows: Sequence[ScalingRow]) -> pd.DataFrame:
    """The series as a table."""
    return pd.DataFrame([asdict(row) for row in rows], columns=list(ScalingRow.__dataclass_fields__))


def scaling_chart(rows: Sequence[ScalingRow]) -> Drawing:
    """Score against accelerators on the left, efficiency on the right."""

    def paint(figure: Any) -> None:
        left = figure.subplots()
        accelerators = [row.accelerators for row in rows]
        left.plot(accelerators, [row.ideal_ops for row in rows], "--", color=COLOURS[2], label="ideal")
        left.plot(accelerators, [row.score_ops for row in rows], "o-", color=COLOURS[0], label="score")
        left.set(xlabel="accelerators", ylabel="score (OPS)", xlim=(0, None), ylim=(0, None))
        left.legend(loc="upper left")
        right = left.twinx()
        right.plot(accelerators, [100 * row.efficiency for row in rows], "s:", color=COLOURS[1], markersize=4)
        right.set_ylabel("efficiency (%)", color=COLOURS[1])
        right.set_ylim(0, 110)
        right.grid(visible=False)

    return draw(
        "scaling", "Weak scaling: score against accelerators, and efficiency relative to the smallest run.", paint
    )
