"""HTML pages of results: self-contained files, from templates that escape all values."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from aiperf.cli.units import interval, number, percent, si
from aiperf.config.duration import format_duration
from analysis.output.figures.style import PHASE_COLOURS


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
    environment.globals["interval"] = interval
    environment.globals["phase_colours"] = PHASE_COLOURS
    return environment.get_template(template).render(**values)
