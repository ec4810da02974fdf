"""The figure of the benchmark: quality against time, and against images, by groups."""

from pathlib import Path
from typing import Any

from analysis.output.figures.style import COLOURS, GRID, draw
from analysis.output.pictures import save_drawing
from benchmarks.hybrid.measures import Report, curves_of

CAPTION = "Validation accuracy of hepcnn (rehearsal) against time and against images, by groups. Dotted: the quality."


def write_figure(path: Path, reports: dict[int, Report], quality: float) -> None:
    """Write `path` as SVG and PNG, whatever its suffix."""

    def paint(figure: Any) -> None:
        axes = figure.subplots(1, 2, sharey=True)
        for number, (groups, report) in enumerate(reports.items()):
            for place, curve in enumerate(curves_of(report)):
                look = {"color": COLOURS[number % len(COLOURS)], "marker": "."}
                label = f"{groups} group{'s' if groups > 1 else ''}" if place == 0 else None
                values = [point["quality"] for point in curve]
                axes[0].plot([point["t_s"] for point in curve], values, label=label, **look)
                axes[1].plot([point["images"] / 1000 for point in curve], values, label=label, **look)
        for axis, name in zip(axes, ("seconds since the job", "images (thousands)"), strict=True):
            axis.axhline(quality, color=GRID, linestyle=":")
            axis.set(xlabel=name, xlim=(0, None))
        axes[0].set(ylabel="accuracy")
        axes[1].legend(loc="lower right")

    save_drawing(path.parent, draw(path.stem, CAPTION, paint))
