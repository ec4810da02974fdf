"""Quality against time and against operations on the page."""

from __future__ import annotations

from collections.abc import Iterator

from bokeh.models import ColumnDataSource, Span

from analysis.output.figures.quality import NAMED, Curve, caption_of, curves_of
from analysis.output.figures.style import COLOURS
from analysis.output.page.plots import Chart, add_hover, add_legend, new_plot
from analysis.report.model import Report
from analysis.report.workloads import WorkloadPart


def chart_name(place: int, against: str) -> str:
    """The name of a chart: of the workload at a place, against time or operations."""
    return f"quality-{place}-{against}"


def quality_charts(report: Report) -> Iterator[Chart]:
    """Two charts for each workload with a measured epoch."""
    for place, part in enumerate(report.workloads):
        for against in ("time", "operations"):
            found = curves_of(part, against)
            if found is not None:
                yield _chart(place, part, against, *found)


def _chart(place: int, part: WorkloadPart, against: str, label: str, curves: list[Curve]) -> Chart:
    measure = (part.measure or "quality").replace("_", " ")
    plot, marks = new_plot(label, measure), []
    for number, (model, places, qualities, epochs) in enumerate(curves):
        source = ColumnDataSource({
            "x": places, "quality": qualities, "epoch": epochs, "model": [model] * len(places)
        })  # fmt: skip
        look = {"color": COLOURS[number % len(COLOURS)]}
        named = {"legend_label": f"model {model}"} if len(curves) <= NAMED else {}
        plot.line("x", "quality", source=source, line_width=2, **look, **named)
        marks.append(plot.scatter("x", "quality", source=source, size=6, **look, **named))
    if part.target is not None:
        plot.add_layout(Span(location=part.target, dimension="width", line_color=COLOURS[2], line_dash="dotted"))
    tips = [("model", "@model"), ("epoch", "@epoch"), (measure, "@quality{0.0000}"), (label, "@x{0.00}")]
    add_hover(plot, tips, marks)
    add_legend(plot)
    return Chart(chart_name(place, against), caption_of(part, against), plot)
