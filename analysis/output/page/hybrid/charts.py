"""Staleness and time of hybrid training on the page."""

from __future__ import annotations

from collections.abc import Iterator

from bokeh.models import ColumnDataSource

from analysis.output.figures.hybrid import TIMES, shares_of, staleness_bars
from analysis.output.figures.style import COLOURS
from analysis.output.page.plots import Chart, add_hover, add_legend, new_plot
from analysis.report.hybrid.parts import HybridPart
from analysis.report.model import Report


def hybrid_charts(report: Report) -> Iterator[Chart]:
    """The histogram of staleness, and the time of each group; none without any update."""
    part = report.hybrid
    if part is not None and part.updates:
        yield _staleness(part)
        yield _time(part)


def _staleness(part: HybridPart) -> Chart:
    names, percents = staleness_bars(part)
    plot = new_plot("staleness", "updates (%)", x_range=names)
    bars = plot.vbar(x="name", top="percent", width=0.8, color=COLOURS[0],
                     source=ColumnDataSource({"name": names, "percent": percents}))  # fmt: skip
    plot.y_range.start = 0
    add_hover(plot, [("staleness", "@name"), ("updates", "@percent{0.00} %")], [bars])
    return Chart("staleness", "Updates by staleness: updates of others that the servers had applied since the "
                 "weights were read.", plot)  # fmt: skip


def _time(part: HybridPart) -> Chart:
    shares = shares_of(part)
    groups = [share.group for share in shares]
    plot = new_plot("group", "time (%)", x_range=groups)
    columns = {name: [share.percents[number] for share in shares] for number, name in enumerate(TIMES)}
    source = ColumnDataSource({"group": groups, **columns})
    bars = plot.vbar_stack(list(TIMES), x="group", width=0.8, color=list(TIMES.values()), source=source,
                           legend_label=list(TIMES))  # fmt: skip
    plot.y_range.start = 0
    add_hover(plot, [("group", "@group"), *((name, f"@{{{name}}}{{0.0}} %") for name in TIMES)], bars)
    add_legend(plot)
    return Chart("group-time", "Time of each group: computing, all-reduce and broadcast inside the group, and "
                 "waiting for parameter servers.", plot)  # fmt: skip
