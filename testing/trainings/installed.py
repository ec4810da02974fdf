"""Tests that need a framework which an environment may lack."""

from __future__ import annotations

import pytest

from aiperf.config.frameworks import why_not_installed


def need_frameworks(*names: str) -> None:
    """Skip the test, and say what to install, if this Python lacks a framework."""
    reasons = [reason for reason in map(why_not_installed, names) if reason is not None]
    if reasons:
        pytest.skip("; ".join(reasons))
