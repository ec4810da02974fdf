"""The roofline on the page: ceilings, operators and trials, with their names under the pointer."""

from __future__ import annotations

from bokeh.models import ColumnDataSource

from aiperf.cli.units import scale_of
from analysis.output.figures.roofline import CAPTION, SERIES, roofline_of
from analysis.output.figures.style import INK
from analysis.output.page.plots import Chart, add_hover, add_legend, new_plot
from analysis.report.model import Report


def roofline_plot(report: Report) -> Chart | None:
    """The chart; None if nothing was measured."""
    found = roofline_of(report)
    if found is None:
        return None
    prefix, size = scale_of(found.top)
    plot = new_plot("operations a byte", f"{prefix}OPS", x_axis_type="log", y_axis_type="log")
    for part in found.ceilings:
        xs, ys = found.roof(part)
        plot.line(xs, [value / size for value in ys], color=INK, line_width=1.5, legend_label="ceiling")
    marked = []
    for name, marks in found.marks.items():
        source = ColumnDataSource({
            "x": [float(f"{mark.intensity:.5g}") for mark in marks],
            "y": [float(f"{mark.ops / size:.5g}") for mark in marks],
            "name": [mark.name for mark in marks],
        })  # fmt: skip
        marked.append(plot.scatter("x", "y", source=source, size=8, color=SERIES[name], alpha=0.8, legend_label=name))
    add_hover(plot, [("", "@name"), ("operations a byte", "@x{0.00}"), (f"{prefix}OPS", "@y{0.000}")], marked)
    add_legend(plot)
    return Chart("roofline", CAPTION, plot)
