"""Weak scaling (paper, figure 6): score against accelerators, ideal line and efficiency.

A series without accelerators scales with its ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd
from matplotlib.ticker import MaxNLocator

from aiperf.cli.units import scale_of
from analysis.output.figures.style import COLOURS, Drawing, draw
from analysis.report.model import Report
from analysis.results.comparison import Difference, differing_settings
from analysis.results.source import RunResult

OF_THE_SIZE = frozenset({"run.name", "run.replicas", "ssh.hosts"})
"""Settings that a series may vary: they make its runs larger, or name them."""

MOST_LETTERS = 24
"""Upper limit for the characters of a value in a warning; hashes are longer."""

LEAST_TOP = 110.0
"""Upper end of the axis of efficiency in percent, unless a run exceeds it."""


@dataclass(frozen=True, slots=True)
class ScalingRow:
    """One run of a series.

    `ideal_ops` is the smallest run's score times the ratio of accelerators, or of ranks if a run of
    the series has no accelerators. An invalid run has neither score nor efficiency.
    `differing_settings`: settings other than the size in which the smallest run (`first`) and this
    one (`second`) differ. With any, the efficiency compares more than sizes.
    """

    replicas: int
    accelerators: int
    ranks: int | None
    score_ops: float | None
    regulated_score_ops: float | None
    error: float
    ideal_ops: float | None
    efficiency: float | None
    status: str
    origin: str
    differing_settings: tuple[Difference, ...] = ()


def scaling_rows(results: Sequence[RunResult]) -> tuple[ScalingRow, ...]:
    """The series by size; efficiency = score / ideal. Runs without a score come last."""
    usable = [result for result in results if result.scored.score_ops]
    measure = "accelerators" if all(result.report.accelerators for result in usable) else "ranks"
    usable = [result for result in usable if getattr(result.report, measure)]
    usable.sort(key=lambda result: (getattr(result.report, measure), result.report.present))
    smallest = usable[0].scored if usable else None
    rows = []
    for result in [*usable, *(result for result in results if result not in usable)]:
        report, ideal = result.scored, None
        if smallest is not None and result in usable:
            ideal = (smallest.score_ops or 0.0) / getattr(smallest, measure) * getattr(report, measure)
        rows.append(
            ScalingRow(
                report.present, report.accelerators, report.ranks, report.score_ops, report.regulated_score_ops,
                report.error, ideal, report.score_ops / ideal if ideal and report.score_ops else None,
                result.status, str(result.origin), _differences(smallest, report),
            )
        )  # fmt: skip
    return tuple(rows)


def _differences(smallest: Report | None, report: Report) -> tuple[Difference, ...]:
    if smallest is None:
        return ()
    return tuple(item for item in differing_settings(smallest, report) if item.key not in OF_THE_SIZE)


def differences_in_words(rows: Sequence[ScalingRow]) -> tuple[str, ...]:
    """One line for each run whose settings differ from those of the smallest run."""
    return tuple(
        f"{row.origin}: {', '.join(map(_in_words, row.differing_settings))}" for row in rows if row.differing_settings
    )


def _in_words(item: Difference) -> str:
    return f"{item.key} = {_short(item.second)} (smallest run: {_short(item.first)})"


def _short(value: str) -> str:
    return value if len(value) <= MOST_LETTERS else f"{value[:MOST_LETTERS]}..."


def scaling_frame(rows: Sequence[ScalingRow]) -> pd.DataFrame:
    """The series as a table."""
    keys = ["; ".join(item.key for item in row.differing_settings) for row in rows]
    table = pd.DataFrame([asdict(row) for row in rows], columns=list(ScalingRow.__dataclass_fields__))
    return table.assign(differing_settings=keys)


def scaling_chart(rows: Sequence[ScalingRow]) -> Drawing:
    """Score against accelerators (or ranks) on the left, efficiency on the right.

    Runs of other settings than the smallest have hollow marks.
    """
    rows = [row for row in rows if row.efficiency is not None]
    measure = "accelerators" if all(row.accelerators for row in rows) else "ranks"
    caption = f"Weak scaling: score against {measure}, and efficiency relative to the smallest run."
    if any(row.differing_settings for row in rows):
        caption += " Hollow marks: runs whose settings differ from those of the smallest run in more than the size."
    return draw("scaling", caption, lambda figure: _paint(figure, rows, measure))


def _paint(figure: Any, rows: Sequence[ScalingRow], measure: str) -> None:
    left = figure.subplots()
    sizes = [getattr(row, measure) for row in rows]
    scores, ideal = [row.score_ops or 0.0 for row in rows], [row.ideal_ops or 0.0 for row in rows]
    efficiencies = [100 * (row.efficiency or 0.0) for row in rows]
    prefix, size = scale_of(max([*scores, *ideal], default=0.0))
    left.plot(sizes, [value / size for value in ideal], "--", color=COLOURS[2], label="ideal")
    _series(left, sizes, [value / size for value in scores], rows, ("o", "-", COLOURS[0]))
    left.set(xlabel=measure, ylabel=f"score ({prefix}OPS)", xlim=(0, None), ylim=(0, None))
    left.xaxis.set_major_locator(MaxNLocator(integer=True))
    left.legend(loc="upper left")
    right = left.twinx()
    _series(right, sizes, efficiencies, rows, ("s", ":", COLOURS[1]))
    right.set_ylabel("efficiency (%)", color=COLOURS[1])
    right.set_ylim(0, max(LEAST_TOP, 1.1 * max(efficiencies, default=0.0)))
    right.grid(visible=False)


def _series(
    axes: Any, sizes: Sequence[int], values: Sequence[float], rows: Sequence[ScalingRow], look: tuple[str, str, str]
) -> None:
    """A line through the runs of one configuration, and hollow marks for the others."""
    marker, line, colour = look
    points = list(zip(sizes, values, (bool(row.differing_settings) for row in rows), strict=True))
    same = [(size, value) for size, value, differs in points if not differs]
    axes.plot(*zip(*same, strict=True), marker + line, color=colour, markersize=5, label="score")
    for size, value, differs in points:
        if differs:
            axes.plot(size, value, marker, color=colour, markerfacecolor="none", markersize=5)
