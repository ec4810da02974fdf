"""HTML pages of results: self-contained files, from templates that escape all values."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from aiperf.cli.units import interval, number, percent, si
from aiperf.config.duration import format_duration
from analysis.output.figures.style import PHASE_COLOURS

POLICY = "the policy of this page"
"""Stands in a page until its scripts are known."""


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
    environment.globals |= {"interval": interval, "policy": POLICY, "data_links": {}}
    environment.globals["phase_colours"] = PHASE_COLOURS
    page = environment.get_template(template).render(**values)
    return page.replace(POLICY, _policy(page), 1) if f'content="{POLICY}"' in page else page


def _policy(page: str) -> str:
    """The Content-Security-Policy of a page: its own scripts run, and nothing is loaded."""
    scripts = (text.encode() for text in re.findall(r"<script>(.*?)</script>", page, re.DOTALL))
    hashes = "".join(f" 'sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}'" for text in scripts)
    own = f"script-src{hashes}; " if hashes else ""
    return f"default-src 'none'; {own}style-src 'unsafe-inline'; img-src data:"
