"""Clocks, and times as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiperf.clock import SystemClock, format_utc, parse_utc


@given(st.integers(0, 4_000_000_000_000))
def test_times_survive_their_text(utc_ms: int) -> None:
    assert parse_utc(format_utc(utc_ms)) == utc_ms


def test_the_clock_runs_with_the_monotonic_clock_and_can_be_set_wrong() -> None:
    clock, shifted = SystemClock(), SystemClock(shift_ms=180_000)
    now = clock.monotonic_ms()
    assert clock.utc_ms_at(now + 1000) - clock.utc_ms_at(now) == 1000
    assert abs(shifted.utc_ms_at(now) - clock.utc_ms_at(now) - 180_000) <= 2
    with pytest.raises(ValueError, match="no time zone"):
        parse_utc("2026-01-01T00:00:00.000")
    for wrong in ("2026-01-01T00:00:60.000Z", "2026-13-01T00:00:00.000Z", "2026-01-01T00:00:0x.000Z", ""):
        with pytest.raises(ValueError, match=r".+"):
            parse_utc(wrong)
