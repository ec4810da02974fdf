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
from analysis.output.page.machine import hardware_of
from analysis.report.model import Report
from analysis.results.comparison import Difference, differing_settings
from analysis.results.source import RunResult

OF_THE_SIZE = frozenset({"run.name", "run.replicas", "ssh.hosts"})
"""Settings that a series may vary: they make its runs larger, or name them."""

MOST_LETTERS = 24
"""Upper limit for the characters of a value in a warning; hashes are longer."""

WIDTH_IN, HEIGHT_IN = 4.6, 4.2
"""Size of the figure: narrow, so that a phone shows all of it in letters that can be read."""

LEAST_TOP = 110.0
"""Upper end of the axis of efficiency in percent, unless a run exceeds it."""


@dataclass(frozen=True, slots=True)
class ScalingRow:
    """One run of a series.

    `ideal_ops` is the smallest run's score times the ratio of accelerators, or of ranks if a run of
    the series has no accelerators. An invalid run has neither score nor efficiency.
    `differing_settings`: settings other than the size in which the smallest run (`first`) and this
    one (`second`) differ. With any, the efficiency compares more than sizes. The interval (95 %) is
    that of the score.
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
    interval_low: float | None = None
    interval_high: float | None = None
    nodes: int | None = None
    processor: str = ""
    accelerator: str = ""
    """Models; empty if they are unknown."""
    started: str | None = None
    """Time of the release, of a rehearsal that of its making: ISO 8601, UTC."""


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
        known = report.statistics.score_ops if report.statistics is not None and report.score_ops is not None else None
        hardware = hardware_of(report)
        rows.append(
            ScalingRow(
                report.present, report.accelerators, report.ranks, report.score_ops, report.regulated_score_ops,
                report.error, ideal, report.score_ops / ideal if ideal and report.score_ops else None,
                result.status, str(result.origin), _differences(smallest, report),
                known.low if known is not None else None, known.high if known is not None else None,
                hardware.nodes, hardware.processor, hardware.accelerator, report.made,
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


def measure_of(rows: Sequence[ScalingRow]) -> str:
    """The size that the series grows in: accelerators, or ranks if a run with a score has none."""
    return "accelerators" if all(row.accelerators for row in rows if row.efficiency is not None) else "ranks"


def scaling_chart(rows: Sequence[ScalingRow]) -> Drawing:
    """Score against accelerators (or ranks) above, efficiency below.

    Bars are 95 % intervals. Runs of other settings than the smallest have hollow marks.
    """
    measure = measure_of(rows)
    rows = [row for row in rows if row.efficiency is not None]
    caption = f"Weak scaling: score against {measure}, and efficiency relative to the smallest run."
    if any(row.interval_low is not None for row in rows):
        caption += " Bars: 95 % intervals."
    if any(row.differing_settings for row in rows):
        caption += " Hollow marks: runs whose settings differ from those of the smallest run in more than the size."
    return draw("scaling", caption, lambda figure: _paint(figure, rows, measure), HEIGHT_IN, WIDTH_IN)


def _paint(figure: Any, rows: Sequence[ScalingRow], measure: str) -> None:
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    sizes = [getattr(row, measure) for row in rows]
    scores, ideal = [row.score_ops or 0.0 for row in rows], [row.ideal_ops or 0.0 for row in rows]
    efficiencies = [100 * (row.efficiency or 0.0) for row in rows]
    prefix, size = scale_of(max([*scores, *ideal], default=0.0))
    above.plot(sizes, [value / size for value in ideal], "--", color=COLOURS[2], label="ideal")
    _series(above, sizes, [value / size for value in scores], rows, ("o", "-", COLOURS[0]))
    for row, at in zip(rows, sizes, strict=True):
        if row.interval_low is not None and row.interval_high is not None:
            above.vlines(at, row.interval_low / size, row.interval_high / size, color=COLOURS[0])
    above.set(ylabel=f"score ({prefix}OPS)", ylim=(0, None))
    above.legend(loc="upper left")
    _series(below, sizes, efficiencies, rows, ("s", "-", COLOURS[1]))
    below.set(xlabel=measure, ylabel="efficiency (%)", xlim=(0, None))
    below.set_ylim(0, max(LEAST_TOP, 1.1 * max(efficiencies, default=0.0)))
    below.xaxis.set_major_locator(MaxNLocator(integer=True))


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
