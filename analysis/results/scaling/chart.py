"""The figure of a series: score and efficiency by size, and the law that fits best."""

from collections.abc import Sequence
from typing import Any

from matplotlib.ticker import MaxNLocator

from aiperf.cli.units import scale_of
from analysis.output.figures.style import COLOURS, INK, Drawing, draw
from analysis.results.scaling.laws import Fit, Mode
from analysis.results.scaling.rows import ScalingRow, fits_of, measure_of

WIDTH_IN, HEIGHT_IN = 4.6, 4.2
"""Size of the figure: narrow, so that a phone shows all of it in letters that can be read."""

LEAST_TOP = 110.0
"""Upper end of the axis of efficiency in percent, unless a run exceeds it."""


def scaling_chart(rows: Sequence[ScalingRow], mode: Mode = "weak") -> Drawing:
    """Score against accelerators (or ranks) above, efficiency below.

    Bars are 95 % intervals. Runs of other settings than the smallest have hollow marks. The law
    that fits best leads to the score that it expects of the next size.
    """
    law = min(fits_of(rows, mode), key=lambda fit: (fit.scatter is None, fit.scatter), default=None)
    law = None if law is None or law.scatter is None else law
    measure = measure_of(rows)
    rows = [row for row in rows if row.efficiency is not None]
    caption = f"{mode.capitalize()} scaling: score against {measure}, and efficiency relative to the smallest run."
    if any(row.interval_low is not None for row in rows):
        caption += " Bars: 95 % intervals."
    if any(row.differing_settings for row in rows):
        caption += " Hollow marks: runs whose settings differ from those of the smallest run in more than the size."
    if law is not None:
        caption += f" Dotted: the law of {law.law}, up to the next size with its 95 % interval."
    return draw("scaling", caption, lambda figure: _paint(figure, rows, measure, law), HEIGHT_IN, WIDTH_IN)


def _paint(figure: Any, rows: Sequence[ScalingRow], measure: str, law: Fit | None) -> None:
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    sizes = [getattr(row, measure) for row in rows]
    scores, ideal = [row.score_ops or 0.0 for row in rows], [row.ideal_ops or 0.0 for row in rows]
    efficiencies = [100 * (row.efficiency or 0.0) for row in rows]
    prefix, size = scale_of(max([*scores, *ideal, law.predicted if law is not None else 0.0], default=0.0))
    above.plot(sizes, [value / size for value in ideal], "--", color=COLOURS[2], label="ideal")
    _series(above, sizes, [value / size for value in scores], rows, ("o", "-", COLOURS[0]))
    for row, at in zip(rows, sizes, strict=True):
        if row.interval_low is not None and row.interval_high is not None:
            above.vlines(at, row.interval_low / size, row.interval_high / size, color=COLOURS[0])
    if law is not None:
        above.plot([m for m, _ in law.curve], [rate / size for _, rate in law.curve], ":", color=INK, label=law.law)
        if law.predicted_low is not None and law.predicted_high is not None:
            above.vlines(law.next_size, law.predicted_low / size, law.predicted_high / size, color=INK)
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
