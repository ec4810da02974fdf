"""Clocks, and times as text."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiperf.clock import SystemClock, format_utc, parse_utc, wait_awake
from rehearsal.virtual.loop import VirtualLoop, run_virtually


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


@pytest.mark.parametrize("seconds", [0.0, 2.0, 60.0, 600.0])
def test_silence_is_over_when_its_time_has_passed(seconds: float) -> None:
    async def scenario(loop: VirtualLoop) -> float:
        with pytest.raises(TimeoutError):
            await wait_awake(asyncio.Event().wait, seconds)
        return loop.time()

    assert run_virtually(scenario) == pytest.approx(seconds)


def test_what_waits_in_a_pipe_is_read_after_a_suspension_of_the_reader() -> None:
    async def scenario(loop: VirtualLoop) -> tuple[bytes, float]:
        reader = asyncio.StreamReader()

        def suspend() -> None:
            loop.advance(86_400)
            reader.feed_data(b"alive\n")

        loop.call_later(7, suspend)
        return await wait_awake(reader.readline, 60), loop.time()

    assert run_virtually(scenario) == (b"alive\n", 86_407)


def test_what_comes_soon_costs_one_timer() -> None:
    async def scenario(loop: VirtualLoop) -> int:
        came, waits = asyncio.Event(), 0

        async def wait() -> None:
            nonlocal waits
            waits += 1
            await came.wait()

        loop.call_later(25, came.set)
        await wait_awake(wait, 60)
        return waits

    assert run_virtually(scenario) == 1


def test_the_time_of_a_suspension_does_not_count_as_silence() -> None:
    async def scenario(loop: VirtualLoop) -> float:
        loop.call_later(7, loop.advance, 86_400)
        with pytest.raises(TimeoutError):
            await wait_awake(asyncio.Event().wait, 60)
        return loop.time()

    assert 86_460 <= run_virtually(scenario) <= 86_470


def test_an_error_of_what_is_waited_for_is_not_taken_for_silence() -> None:
    async def refuse() -> None:
        raise TimeoutError("of a connection")

    async def scenario(_: VirtualLoop) -> None:
        await wait_awake(refuse, 60)

    with pytest.raises(TimeoutError, match="of a connection"):
        run_virtually(scenario)
