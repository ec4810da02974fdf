"""The page of a report: its charts, and everything else that its template shows."""

from collections.abc import Iterator

from bokeh.core.properties import value
from bokeh.models import ColumnDataSource, LabelSet, Span
from markupsafe import Markup

from aiperf.cli.units import interval, percent, scale_of
from analysis.output.figures.hybrid import TIMES, shares_of, staleness_bars
from analysis.output.figures.quality import NAMED, Curve, caption_of, curves_of
from analysis.output.figures.roofline import CAPTION, SERIES, roofline_of
from analysis.output.figures.search import Grown, grown_architectures
from analysis.output.figures.style import COLOURS, GRID, INK
from analysis.output.page import vocabulary as words
from analysis.output.page.embed import charts_json, library
from analysis.output.page.hybrid import group_rows, lost_groups, server_rows, training_rows
from analysis.output.page.links import Links
from analysis.output.page.machine import machine_of
from analysis.output.page.network_chart import network_chart
from analysis.output.page.phase_charts import phase_charts
from analysis.output.page.plots import FONT, LABEL, Chart, add_hover, add_legend, new_plot
from analysis.output.page.science import currency_of, filled, headline, model_rows, result_rows, split
from analysis.output.page.time_charts import accuracy_chart, score_chart, trial_chart, utilisation_chart
from analysis.output.page.trials import MOST_TRIALS, Best, best_of, safe_json, trial_details
from analysis.output.pages import render
from analysis.reading.run_data import RunData
from analysis.report.hybrid.parts import HybridPart
from analysis.report.model import Report
from analysis.report.phases import WAITS, measured_waits, share_of_training, worst_first
from analysis.report.trials import most_accurate
from analysis.report.workloads import WorkloadPart

# Charts of hybrid training: staleness, and the parts of the groups' time.


def hybrid_charts(report: Report) -> Iterator[Chart]:
    """The histogram of staleness, and the time of each group; none without any update."""
    part = report.hybrid
    if part is not None and part.updates:
        yield _staleness(part)
        yield _time(part)


def _staleness(part: HybridPart) -> Chart:
    names, percents = staleness_bars(part)
    plot = new_plot("staleness", "updates (%)", x_range=names)
    bars = plot.vbar(
        x="name",
        top="percent",
        width=0.8,
        color=COLOURS[0],
        source=ColumnDataSource({"name": names, "percent": percents}),
    )
    plot.y_range.start = 0
    add_hover(plot, [("staleness", "@name"), ("updates", "@percent{0.00} %")], [bars])
    return Chart(
        "staleness",
        "Updates by staleness: updates of others that the servers had applied since the weights were read.",
        plot,
    )


def _time(part: HybridPart) -> Chart:
    shares = shares_of(part)
    groups = [share.group for share in shares]
    plot = new_plot("group", "time (%)", x_range=groups)
    columns = {name: [share.percents[number] for share in shares] for number, name in enumerate(TIMES)}
    source = ColumnDataSource({"group": groups, **columns})
    bars = plot.vbar_stack(
        list(TIMES), x="group", width=0.8, color=list(TIMES.values()), source=source, legend_label=list(TIMES)
    )
    plot.y_range.start = 0
    add_hover(plot, [("group", "@group"), *((name, f"@{{{name}}}{{0.0}} %") for name in TIMES)], bars)
    add_legend(plot)
    return Chart(
        "group-time",
        "Time of each group: computing, all-reduce and broadcast inside the group, and waiting for parameter servers.",
        plot,
    )


# The chart of the roofline: ceilings, operators and trials, with their names under the pointer.


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
        source = ColumnDataSource(
            {
                "x": [float(f"{mark.intensity:.5g}") for mark in marks],
                "y": [float(f"{mark.ops / size:.5g}") for mark in marks],
                "name": [mark.name for mark in marks],
            }
        )
        marked.append(plot.scatter("x", "y", source=source, size=8, color=SERIES[name], alpha=0.8, legend_label=name))
    add_hover(plot, [("", "@name"), ("operations a byte", "@x{0.00}"), (f"{prefix}OPS", "@y{0.000}")], marked)
    add_legend(plot)
    return Chart("roofline", CAPTION, plot)


# Charts of scientific workloads: quality against time and against operations.


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
        source = ColumnDataSource({"x": places, "quality": qualities, "epoch": epochs, "model": [model] * len(places)})
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


# The chart of the search: every architecture by cost and accuracy, with the way to the best.

MOST_ARCHITECTURES = 1500
MOST_LINES = 400
ROOM = 0.14
"""Share of the chart's width and height that a name takes."""


def lineage_chart(report: Report, best: Best) -> Chart:
    """Operations per image against accuracy; grey lines lead from parents to children."""
    every = grown_architectures(report.trials)
    shown = sorted(every.values(), key=lambda grown: -grown.accuracy)[:MOST_ARCHITECTURES]
    prefix, size = scale_of(max((grown.image_operations for grown in shown), default=1))
    plot = new_plot(f"operations of training one image ({prefix}OP)", "best top-1 accuracy")
    pairs = [(every[grown.parent], grown) for grown in shown[:MOST_LINES] if grown.parent in every]
    plot.segment(
        [a.image_operations / size for a, _ in pairs],
        [a.accuracy for a, _ in pairs],
        [b.image_operations / size for _, b in pairs],
        [b.accuracy for _, b in pairs],
        color=GRID,
        alpha=0.5,
    )
    marks = plot.scatter(
        "x", "y", source=_marks(shown, size), size=8, color=COLOURS[0], alpha=0.8, legend_label="architectures"
    )
    way = [every[step.architecture] for step in best.steps if step.architecture in every]
    path = _marks(way, size)
    plot.line("x", "y", source=path, color=COLOURS[1], line_width=2.5, legend_label="the way to the best")
    own = plot.scatter("x", "y", source=path, size=10, color=COLOURS[1], legend_label="the way to the best")
    named = _marks(_apart(way, shown), size)
    # Names on the right stand to the left of their marks: behind them the chart may end.
    middle = sum(bound([grown.image_operations for grown in shown], default=0) for bound in (min, max)) / 2
    right = [x * size > middle for x in named.data["x"]]
    named.add(["right" if is_right else "left" for is_right in right], "align")
    named.add([-6 if is_right else 6 for is_right in right], "dx")
    plot.add_layout(LabelSet(x="x", y="y", text="name", source=named, x_offset="dx", y_offset=6, text_align="align",
                             text_color=INK, text_font=value(FONT), text_font_size=LABEL))  # fmt: skip
    plot.x_range.range_padding = 0.35
    plot.y_range.range_padding = 0.35
    # Of a single architecture: the range without padding.
    plot.x_range.default_span, plot.y_range.default_span = middle / size / 2 or 1, 0.1
    add_hover(plot, [("first", "@name"), ("architecture", "@hash"), ("accuracy", "@y{0.0000}"),
                     ("training one image", f"@x{{0.00}} {prefix}OP")], [marks, own])  # fmt: skip
    add_legend(plot)
    some = f"the best {len(shown):,} of {len(every):,}" if len(shown) < len(every) else f"{len(every):,}"
    caption = f"Architectures ({some}) by cost and best accuracy; lines lead from parents to children."
    return Chart("lineage", caption, plot)


def _apart(way: list[Grown], shown: list[Grown]) -> list[Grown]:
    """Select the architectures of the way whose names have room, the best first."""
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


# The page around the charts.

MOST_ROWS = 200
"""Upper limit for the rows of a table in a page; the CSV files have all."""


def report_page(data: RunData, report: Report, links: Links | None = None) -> str:
    """The report of a run as one file without links to others.

    A page that is served has `links` to its scripts instead.
    """
    best = best_of(report)
    charts = {chart.name: chart for chart in _charts(data, report, best)}
    trials = most_accurate(report.trials, MOST_TRIALS)
    results, rates = split(result_rows(report), "workload")
    return render(
        "report.html",
        report=report,
        machine=(machine := machine_of(report)),
        sentence=words.sentence(report, machine),
        score_interval=_score_interval(report),
        words=words,
        meanings=words.meanings(report),
        known=words.known,
        best=best,
        charts=charts,
        charts_json=charts_json(charts.values()),
        links=links,
        library=library() if charts and links is None else "",
        ink=INK,
        trials=trials,
        trials_json=Markup(safe_json(trial_details(data, trials))),  # escaped
        phase_shares=phase_shares(report),
        waits=waits_in_words(report),
        broken=[rule for rule in report.rules if not rule.passed],
        met=[rule for rule in report.rules if rule.passed],
        failures=report.failures[:MOST_ROWS],
        findings=report.physics.findings[:MOST_ROWS] if report.physics is not None else (),
        replicas=worst_first(report.replica_details)[:MOST_ROWS],
        measured_waits=measured_waits(report.replica_details),
        wait_names=WAITS,
        share_of_training=share_of_training,
        results=filled(results),
        rates=filled(rates),
        headline=headline(report),
        data_links=_data_links(report) if links is None else {},
        models=[filled(model_rows(part, currency_of(report))[:MOST_ROWS]) for part in report.workloads],
        chart_name=chart_name,
        hybrid=_hybrid(report),
    )


def _charts(data: RunData, report: Report, best: Best | None) -> Iterator[Chart]:
    """The charts that the run has data for."""
    if data.start_ms is None or data.duration_ms == 0:
        return
    if report.operations_total:
        yield score_chart(data)
    yield from phase_charts(data)
    if best is not None:
        last = best.steps[-1].architecture
        network = network_chart(data.paths, last, best.steps[0].architecture)
        optional = (network, accuracy_chart(data))
        yield from (chart for chart in optional if chart is not None)
        yield lineage_chart(report, best)
    yield from quality_charts(report)
    yield from hybrid_charts(report)
    if report.trials:
        yield trial_chart(any(trial.best_training_accuracy is not None for trial in report.trials))
    for chart in (roofline_plot(report), utilisation_chart(data)):
        if chart is not None:
            yield chart


def _data_links(report: Report) -> dict[str, tuple[str, ...]]:
    """Files next to the page that have the data of a chart, and its figure."""
    found: dict[str, tuple[str, ...]] = {
        "score": ("tables/timeline.csv", "figures/score.svg"),
        "phases": ("tables/replicas.csv", "figures/phases.svg"),
        "replicas": ("tables/replicas.csv",),
        "accuracy": ("tables/epochs.csv", "figures/accuracy.svg"),
        "lineage": ("tables/trials.csv", "figures/architectures.svg"),
        "trial": ("tables/epochs.csv",),
        "roofline": ("tables/operators.csv", "figures/roofline.svg"),
        "staleness": ("tables/staleness.csv", "figures/hybrid.svg"),
        "group-time": ("tables/hybrid_groups.csv", "figures/hybrid.svg"),
        "utilisation": ("tables/usage.csv", "figures/utilisation.svg"),
    }
    for place, part in enumerate(report.workloads):
        for against in ("time", "operations"):
            found[chart_name(place, against)] = ("tables/quality.csv", f"figures/quality-{part.workload}.svg")
    return found


def _hybrid(report: Report) -> dict[str, list[dict[str, str]]]:
    """The tables of hybrid training; none if trainings were synchronous."""
    part = report.hybrid
    if part is None:
        return {}
    return {
        "groups": group_rows(part),
        "servers": server_rows(part),
        "trials": training_rows(part),
        "lost": lost_groups(part),
    }


def _score_interval(report: Report) -> str:
    part = report.statistics.score_ops if report.statistics is not None else None
    return interval(part.low, part.high, "OPS") if part is not None and part.low is not None else ""


def waits_in_words(report: Report) -> str:
    """Sentence about the parts of the training that were no computing; empty if nobody trained."""
    waited, exchanged, served = (share_of_training(report.replica_details, name) for name in WAITS)
    parts = [] if waited is None else [f"{percent(waited)} waited for images"]
    if exchanged is not None:
        parts.append(f"{percent(exchanged)} was all-reduce, waits for the slowest rank included")
    elif report.hybrid is None and any((part.ranks or 1) > 1 for part in report.replica_details) and parts:
        parts.append("its all-reduce was not told from computing")
    if served is not None:
        parts.append(f"{percent(served)} waited for parameter servers")
    *most, last = parts or [""]
    return f"Of the training, {' and '.join(filter(None, [', '.join(most), last]))}." if parts else ""


def phase_shares(report: Report) -> list[tuple[str, float, float]]:
    """Phases with seconds over all replicas and share in percent: work first, down last."""
    total = sum(report.phases_s.values())
    known = [phase for phase in words.PHASES if report.phases_s.get(phase, 0.0) > 0]
    return [(phase, report.phases_s[phase], 100 * report.phases_s[phase] / total) for phase in known]
