"""Charts of the search: every architecture by cost and accuracy, with the way to the best."""

from __future__ import annotations

from bokeh.core.properties import value
from bokeh.models import ColumnDataSource, LabelSet

from aiperf.cli.units import scale_of
from analysis.output.figures.search import Grown, grown_architectures
from analysis.output.figures.style import COLOURS, GRID, INK
from analysis.output.page.lineage import Best
from analysis.output.page.plots import FONT, LABEL, Chart, add_hover, add_legend, new_plot
from analysis.report.model import Report

MOST_ARCHITECTURES = 1500
MOST_LINES = 400
ROOM = 0.14
"""Of the width and height of the chart, that a name takes."""


def lineage_chart(report: Report, best: Best) -> Chart:
    """Operations per image against accuracy; grey lines lead from parents to children."""
    every = grown_architectures(report.trials)
    shown = sorted(every.values(), key=lambda grown: -grown.accuracy)[:MOST_ARCHITECTURES]
    prefix, size = scale_of(max((grown.image_operations for grown in shown), default=1))
    plot = new_plot(f"operations of training one image ({prefix}OP)", "best top-1 accuracy")
    pairs = [(every[grown.parent], grown) for grown in shown[:MOST_LINES] if grown.parent in every]
    plot.segment([a.image_operations / size for a, _ in pairs], [a.accuracy for a, _ in pairs],
                 [b.image_operations / size for _, b in pairs], [b.accuracy for _, b in pairs],
                 color=GRID, alpha=0.5)  # fmt: skip
    marks = plot.scatter("x", "y", source=_marks(shown, size), size=8, color=COLOURS[0], alpha=0.8,
                         legend_label="architectures")  # fmt: skip
    way = [every[step.architecture] for step in best.steps if step.architecture in every]
    path = _marks(way, size)
    plot.line("x", "y", source=path, color=COLOURS[1], line_width=2.5, legend_label="the way to the best")
    own = plot.scatter("x", "y", source=path, size=10, color=COLOURS[1], legend_label="the way to the best")
    named = _marks(_apart(way, shown), size)
    plot.add_layout(LabelSet(x="x", y="y", text="name", source=named, x_offset=6, y_offset=6, text_color=INK,
                             text_font=value(FONT), text_font_size=LABEL))  # fmt: skip
    plot.x_range.range_padding = 0.35
    plot.y_range.range_padding = 0.35
    add_hover(plot, [("first", "@name"), ("architecture", "@hash"), ("accuracy", "@y{0.0000}"),
                     ("training one image", f"@x{{0.00}} {prefix}OP")], [marks, own])  # fmt: skip
    add_legend(plot)
    some = f"the best {len(shown):,} of {len(every):,}" if len(shown) < len(every) else f"{len(every):,}"
    caption = f"Architectures ({some}) by cost and best accuracy; lines lead from parents to children."
    return Chart("lineage", caption, plot)


def _apart(way: list[Grown], shown: list[Grown]) -> list[Grown]:
    """Those of the way whose names have room, the best first."""
    costs, accuracies = [grown.image_operations for grown in shown], [grown.accuracy for grown in shown]
    wide, high = (max(costs) - min(costs)) * ROOM or 1, (max(accuracies) - min(accuracies)) * ROOM or 1
    kept: list[Grown] = []
    for grown in reversed(way):
        near = (abs(grown.image_operations - other.image_operations) < wide
                and abs(grown.accuracy - other.accuracy) < high for other in kept)  # fmt: skip
        if not any(near):
            kept.append(grown)
    return kept


def _marks(shown: list[Grown], size: float) -> ColumnDataSource:
    return ColumnDataSource({
        "x": [float(f"{grown.image_operations / size:.5g}") for grown in shown],
        "y": [round(grown.accuracy, 5) for grown in shown],
        "hash": [grown.name for grown in shown],
        "name": [f"trial {grown.first_trial}" for grown in shown],
    })  # fmt: skip
