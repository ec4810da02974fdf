"""Tests that need a framework which an environment may lack."""

from __future__ import annotations

import os

import pytest

from aiperf.frameworks.installed import why_not_installed


def need_frameworks(*names: str) -> None:
    """Skip the test, and say what to install, if this Python lacks a framework; fail it in CI."""
    reasons = [reason for reason in map(why_not_installed, names) if reason is not None]
    if not reasons:
        return
    if os.environ.get("CI"):
        pytest.fail("; ".join(reasons))
    pytest.skip("; ".join(reasons))
