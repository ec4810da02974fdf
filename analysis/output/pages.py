"""HTML pages of results, from templates that escape all values."""

import base64
import hashlib
import re
from functools import cache
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from aiperf.cli.units import interval, number, percent, si
from aiperf.config.duration import format_duration
from aiperf.untrusted.text import for_terminal
from analysis.output.figures.style import LOST_COLOURS, PHASE_COLOURS

POLICY = "the policy of this page"
"""Stands in a page until its scripts are known."""


def render(template: str, *packages: str, **values: Any) -> str:
    """A page from one of the templates, which may be in another package."""
    page = templates(*packages).get_template(template).render(**values)
    return page.replace(POLICY, _policy(page), 1) if f'content="{POLICY}"' in page else page


@cache
def templates(*packages: str) -> Environment:
    """The templates of these packages, which may build on those of this one."""
    loaders = [PackageLoader(package) for package in (*packages, "analysis.output")]
    environment = Environment(
        loader=ChoiceLoader(loaders),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_visible,
    )
    environment.filters.update(si=si, percent=percent, number=number, duration=format_duration)
    environment.globals |= {"interval": interval, "policy": POLICY, "data_links": {}}
    environment.globals["phase_colours"] = PHASE_COLOURS
    environment.globals["lost_colours"] = LOST_COLOURS
    return environment


def _visible(value: object) -> object:
    """A text without hidden characters: marks of direction and the like become their codes."""
    return for_terminal(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _policy(page: str) -> str:
    """The Content-Security-Policy of a page: its own scripts run, and nothing is loaded."""
    scripts = (text.encode() for text in re.findall(r"<script>(.*?)</script>", page, re.DOTALL))
    hashes = "".join(f" 'sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}'" for text in scripts)
    own = f"script-src{hashes}; " if hashes else ""
    return f"default-src 'none'; {own}style-src 'unsafe-inline'; img-src data:"
