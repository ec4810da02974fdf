"""HTML pages of results: self-contained files, from templates that escape all values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from aiperf.cli.units import number, percent, si
from aiperf.config.duration import format_duration
from analysis.output.figures.style import PHASE_COLOURS, Drawing
from analysis.report.model import Report
from analysis.report.trials import most_accurate

MOST_ROWS = 200
"""Most rows of a table in a page; the CSV files have all."""


def render(template: str, **values: Any) -> str:
    """A page from one of the templates."""
    environment = Environment(
        loader=PackageLoader("analysis.output"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(si=si, percent=percent, number=number, duration=format_duration)
    environment.globals["phase_colours"] = PHASE_COLOURS
    return environment.get_template(template).render(**values)


def report_page(report: Report, drawings: Sequence[Drawing]) -> str:
    """The report of a run as one file without links to others."""
    return render(
        "report.html",
        report=report,
        drawings={drawing.name: drawing for drawing in drawings},
        phase_shares=phase_shares(report),
        trials=most_accurate(report.trials, MOST_ROWS),
        failures=report.failures[:MOST_ROWS],
        replicas=report.replica_details[:MOST_ROWS],
    )


def phase_shares(report: Report) -> list[tuple[str, float, float]]:
    """Phases with seconds over all replicas and share in percent: training first, idle last."""
    total = sum(report.phases_s.values())
    known = [phase for phase in PHASE_COLOURS if report.phases_s.get(phase, 0.0) > 0]
    return [(phase, report.phases_s[phase], 100 * report.phases_s[phase] / total) for phase in known]
