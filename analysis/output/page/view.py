"""The page of a report: everything that its template shows."""

from __future__ import annotations

from collections.abc import Iterator

from markupsafe import Markup

from aiperf.cli.units import interval
from analysis.output.figures.style import INK
from analysis.output.page import vocabulary as words
from analysis.output.page.embed import charts_json, library
from analysis.output.page.hybrid.charts import hybrid_charts
from analysis.output.page.hybrid.rows import group_rows, server_rows, training_rows
from analysis.output.page.lineage import Best, best_of
from analysis.output.page.links import Links
from analysis.output.page.machine import machine_of
from analysis.output.page.network_chart import network_chart
from analysis.output.page.phase_charts import phase_charts
from analysis.output.page.plots import Chart
from analysis.output.page.roofline.chart import roofline_plot
from analysis.output.page.science.charts import chart_name, quality_charts
from analysis.output.page.science.results import currency_of, filled, model_rows, result_rows
from analysis.output.page.search_charts import lineage_chart
from analysis.output.page.time_charts import accuracy_chart, score_chart, trial_chart, utilisation_chart
from analysis.output.page.trials import MOST_TRIALS, safe_json, trial_details
from analysis.output.pages import render
from analysis.reading.run_data import RunData
from analysis.report.model import Report
from analysis.report.trials import most_accurate

MOST_ROWS = 200
"""Most rows of a table in a page; the CSV files have all."""


def report_page(data: RunData, report: Report, links: Links | None = None) -> str:
    """The report of a run as one file without links to others.

    A page that is served has `links` to its scripts instead.
    """
    best = best_of(report)
    charts = {chart.name: chart for chart in _charts(data, report, best)}
    trials = most_accurate(report.trials, MOST_TRIALS)
    return render(
        "report.html",
        report=report,
        machine=(machine := machine_of(report)),
        sentence=words.sentence(report, machine),
        score_interval=_score_interval(report),
        words=words,
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
        broken=[rule for rule in report.rules if not rule.passed],
        met=[rule for rule in report.rules if rule.passed],
        failures=report.failures[:MOST_ROWS],
        findings=report.physics.findings[:MOST_ROWS] if report.physics is not None else (),
        replicas=report.replica_details[:MOST_ROWS],
        results=filled(result_rows(report)),
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
        yield trial_chart()
    for chart in (roofline_plot(report), utilisation_chart(data)):
        if chart is not None:
            yield chart


def _hybrid(report: Report) -> dict[str, list[dict[str, str]]]:
    """The tables of hybrid training; none if trainings were synchronous."""
    part = report.hybrid
    if part is None:
        return {}
    return {"groups": group_rows(part), "servers": server_rows(part), "trials": training_rows(part)}


def _score_interval(report: Report) -> str:
    part = report.statistics.score_ops if report.statistics is not None else None
    return interval(part.low, part.high, "OPS") if part is not None and part.low is not None else ""


def phase_shares(report: Report) -> list[tuple[str, float, float]]:
    """Phases with seconds over all replicas and share in percent: work first, down last."""
    total = sum(report.phases_s.values())
    known = [phase for phase in words.PHASES if report.phases_s.get(phase, 0.0) > 0]
    return [(phase, report.phases_s[phase], 100 * report.phases_s[phase] / total) for phase in known]
