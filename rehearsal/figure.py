"""The figure of a prediction: score and efficiency against replicas, each with its band."""

from collections.abc import Sequence
from typing import Any

from aiperf.cli.units import scale_of
from analysis.output.figures.style import COLOURS, Drawing, draw
from rehearsal.prediction import Predicted

LEAST_TOP = 110.0
"""Upper end of the axis of efficiency in percent, unless a value exceeds it."""


def prediction_chart(rows: Sequence[Predicted], name: str) -> Drawing:
    """Score on the left, efficiency on the right, over the logarithm of the replicas."""
    caption = (
        f"Predicted weak scaling of {name}: score and efficiency against replicas. Bands: 95 % of runs. "
        "Hollow marks: extrapolated beyond the rehearsed sizes."
    )
    return draw("prediction", caption, lambda figure: _paint(figure, rows))


def _paint(figure: Any, rows: Sequence[Predicted]) -> None:
    left, right = figure.subplots(1, 2)
    prefix, size = scale_of(max(row.score_ops.high or row.score_ops.value for row in rows))
    for axes, unit, key, colour in ((left, size, "score_ops", COLOURS[0]), (right, 0.01, "efficiency", COLOURS[1])):
        bands = [getattr(row, key) for row in rows]
        replicas = [row.replicas for row in rows]
        ends = [(band.low, band.high) for band in bands]
        known = [(low / unit, high / unit) for low, high in ends if low is not None and high is not None]
        if len(known) == len(bands):
            axes.fill_between(replicas, *zip(*known, strict=True), color=colour, alpha=0.25, linewidth=0)
        axes.plot(replicas, [b.value / unit for b in bands], "-", color=colour)
        for row, band in zip(rows, bands, strict=True):
            axes.plot(
                row.replicas,
                band.value / unit,
                "o",
                color=colour,
                markersize=5,
                markerfacecolor=colour if row.rehearsed else "none",
            )
        axes.set_xscale("log", base=2)
        axes.set_xlabel("replicas")
    left.set(ylabel=f"score ({prefix}OPS)", yscale="log")
    right.set(
        ylabel="efficiency (%)",
        ylim=(0, max(LEAST_TOP, *(102 * (row.efficiency.high or row.efficiency.value) for row in rows))),
    )
