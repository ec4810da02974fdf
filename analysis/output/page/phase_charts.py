"""Charts of phases: shares of all replicas over time, and the replicas that waited most."""

from typing import Any

from bokeh.models import ColumnDataSource, FactorRange, Range1d

from analysis.output.figures.style import PHASE_COLOURS, time_unit
from analysis.output.page.plots import Chart, add_hover, new_plot
from analysis.reading.run_data import RunData
from analysis.report.intervals import Span
from analysis.report.phases import INTERVALS, WORST, PhaseSummary, phase_summary

MOST_SPANS = 1500
"""Above this, replicas are shown by their totals: a pixel would hold many spans."""

HEIGHT = 240


def phase_charts(data: RunData) -> tuple[Chart, ...]:
    """Both charts; none if no replica was there."""
    found = phase_summary(data)
    if not found.replicas:
        return ()
    return _shares_chart(data, found), _worst_chart(data, found)


def _shares_chart(data: RunData, found: PhaseSummary) -> Chart:
    unit_s, unit = time_unit(data.duration_ms / 1000)
    end = data.duration_ms / 1000 / unit_s
    parts = found.shares(PHASE_COLOURS)
    width = end / INTERVALS
    middles = [round((place + 0.5) * width, 4) for place in range(INTERVALS)]
    columns = {"t": middles, **{phase: values.round(2).tolist() for phase, values in parts.items()}}
    plot = new_plot(f"{unit} since the start", "share of all replicas (%)", height=HEIGHT)
    plot.x_range, plot.y_range = Range1d(0, end), Range1d(0, 100)
    # Bars overlap a little: where they only met, smoothed edges would let the background through.
    drawn = plot.vbar_stack(
        [*parts],
        x="t",
        width=width * 1.02,
        source=ColumnDataSource(columns),
        color=[PHASE_COLOURS[phase] for phase in parts],
    )
    tips = [("time", f"@t{{0.0[0]}} {unit}"), *((phase, f"@{phase}{{0.0}} %") for phase in parts)]
    add_hover(plot, tips, drawn[:1], "vline")
    return Chart("phases", "Share of the replicas' time by phase, over the run.", plot)


def _worst_chart(data: RunData, found: PhaseSummary) -> Chart:
    rows = [f"replica {number}" for number in found.worst]
    one_by_one = sum(map(len, found.worst.values())) <= MOST_SPANS
    unit_s, unit = time_unit(data.duration_ms / 1000)
    plot = new_plot(
        f"{unit} since the start" if one_by_one else f"{unit} in each phase",
        "",
        height=min(HEIGHT, 70 + 20 * len(rows)),
        y_range=FactorRange(*rows[::-1]),
    )
    plot.x_range = Range1d(0, data.duration_ms / 1000 / unit_s)
    table = _every_span if one_by_one else _totals
    columns = table({f"replica {number}": own for number, own in found.worst.items()}, unit_s)
    marks = plot.hbar(y="row", left="left", right="right", height=0.8, color="colour", source=ColumnDataSource(columns))
    add_hover(plot, [("", "@row"), ("@phase", "@length"), ("trial", "@trial")], [marks])
    most = "" if found.replicas <= WORST else f", the {WORST} of {found.replicas} that were idle or down longest"
    kind = "Phases of each replica over time" if one_by_one else "Time of each replica by phase"
    return Chart("replicas", f"{kind}{most}.", plot)


def _every_span(found: dict[str, list[Span]], unit_s: float) -> dict[str, list[Any]]:
    return _columns(
        [(row, span.phase, span.begin_s, span.end_s, span.trial) for row, own in found.items() for span in own], unit_s
    )


def _totals(found: dict[str, list[Span]], unit_s: float) -> dict[str, list[Any]]:
    bars: list[tuple[str, str, float, float, int | None]] = []
    for row, own in found.items():
        begin_s = 0.0
        for phase in PHASE_COLOURS:
            seconds = sum(span.end_s - span.begin_s for span in own if span.phase == phase)
            if seconds > 0:
                bars.append((row, phase, begin_s, begin_s + seconds, None))
                begin_s += seconds
    return _columns(bars, unit_s)


def _columns(bars: list[tuple[str, str, float, float, int | None]], unit_s: float) -> dict[str, list[Any]]:
    return {
        "row": [row for row, *_ in bars],
        "phase": [phase for _, phase, *_ in bars],
        "colour": [PHASE_COLOURS[phase] for _, phase, *_ in bars],
        "left": [round(begin_s / unit_s, 4) for _, _, begin_s, _, _ in bars],
        "right": [round(end_s / unit_s, 4) for _, _, _, end_s, _ in bars],
        "length": [f"{end_s - begin_s:.1f} s" for _, _, begin_s, end_s, _ in bars],
        "trial": [trial or "-" for *_, trial in bars],
    }
