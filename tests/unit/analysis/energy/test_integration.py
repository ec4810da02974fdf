"""Energy of imitated meters against the integral of their curve: gaps, clocks, resets, limits."""

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from analysis.reading.meters.integration import Curve, Kind, Series, curve_of

RUN_S = 3600.0

Formula = Callable[[Series], Series]

SHAPES: dict[str, tuple[Formula, Formula]] = {
    "constant": (lambda t: 5000 + 0 * t, lambda t: 5000 * t),
    "ramp": (lambda t: 2000 + t, lambda t: 2000 * t + t**2 / 2),
    "waves of epochs": (
        lambda t: 4000 + 900 * np.sin(2 * np.pi * t / 600),
        lambda t: 4000 * t - 900 * 600 / (2 * np.pi) * np.cos(2 * np.pi * t / 600),
    ),
    "warming up": (
        lambda t: 6000 - 2000 * np.exp(-np.maximum(t + 300, 0) / 500),
        lambda t: 6000 * t + 2000 * 500 * np.exp(-(t + 300) / 500),
    ),
}
"""Power at t seconds after the start of the run, and an integral of it."""

GAPS: dict[str, list[tuple[float, float]]] = {
    "whole": [],
    "a gap": [(1000, 1060)],
    "gaps at both ends of the run": [(-30, 30), (3575, 3630)],
    "many short gaps": [(300 * n, 300 * n + 25) for n in range(1, 12)],
}

RESETS: dict[str, list[float]] = {"no reset": [], "resets": [777.0, 2222.0], "resets before a gap": [999.0, 1061.0]}


def readings(shape: str, every_s: float, gaps: str) -> Series:
    """Times of readings from 300 s before the run to 300 s after it."""
    times = np.arange(-300, RUN_S + 300 + every_s, every_s)
    for begin, end in GAPS[gaps]:
        times = times[(times <= begin) | (times >= end)]
    return times


def exact(shape: str, begin_s: float = 0, end_s: float = RUN_S) -> float:
    integral = SHAPES[shape][1]
    return float(integral(np.array(end_s)) - integral(np.array(begin_s)))


def used(curve: Curve, begin_s: float = 0, end_s: float = RUN_S) -> float:
    return curve.used(1000 * begin_s, 1000 * end_s)


@pytest.mark.parametrize("every_s", [1.0, 7.0, 15.0])
@pytest.mark.parametrize(("shape", "gaps"), list(product(SHAPES, GAPS)))
def test_power_integrates_to_the_analytic_energy(shape: str, gaps: str, every_s: float) -> None:
    times, (power, integral) = readings(shape, every_s, gaps), SHAPES[shape]
    instant = curve_of(1000 * times, power(times), "instant")
    assert used(instant) == pytest.approx(exact(shape), rel=1e-3)
    # A reading is the mean of its own interval, behind a gap too.
    means = (integral(times) - integral(times - every_s)) / every_s
    average = curve_of(1000 * times, means, "average")
    assert used(average) == pytest.approx(exact(shape), rel=1e-3)


@pytest.mark.parametrize("every_s", [1.0, 15.0, 60.0])
@pytest.mark.parametrize(("shape", "gaps", "resets"), list(product(SHAPES, GAPS, RESETS)))
def test_a_counter_gives_the_analytic_energy(shape: str, gaps: str, resets: str, every_s: float) -> None:
    times, integral = readings(shape, every_s, gaps), SHAPES[shape][1]
    counter = 1e6 + integral(times) - integral(times[:1])
    for reset_s in RESETS[resets]:
        at = float(1e6 + integral(np.array(reset_s)) - integral(times[:1])[0])
        counter = np.where(times >= reset_s, 1e6 + integral(times) - integral(times[:1]) - at, counter)
    curve = curve_of(1000 * times, counter, "counter")
    # Two resets between two readings look like one.
    assert curve.resets == len({int((times < reset_s).sum()) for reset_s in RESETS[resets]})
    assert used(curve) == pytest.approx(exact(shape), rel=1e-3)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_counter_with_a_limit_begins_again_without_a_loss(shape: str) -> None:
    times, integral = readings(shape, 20.0, "whole"), SHAPES[shape][1]
    limit = 1e6  # passed every few minutes
    curve = curve_of(1000 * times, (integral(times) - integral(times[:1])) % limit, "counter", limit)
    assert curve.resets == 0
    assert used(curve) == pytest.approx(exact(shape), rel=1e-3)
    assert curve.covered_ms(0, 1000 * RUN_S) == 1000 * RUN_S


def test_a_counter_that_falls_far_below_its_limit_was_reset() -> None:
    times = readings("constant", 10.0, "whole")
    counted = 5000 * (times - times[0])
    counter = 4.4e9 + np.where(times < 1000, counted, counted - counted[times >= 1000][0] - 4.4e9)
    curve = curve_of(1000 * times, counter, "counter", 3.6e12)
    assert curve.resets == 1, "from 1,224 kWh to 0, with a limit of 1,000,000 kWh"
    assert used(curve) == pytest.approx(exact("constant"), rel=1e-3)
    assert curve.covered_ms(0, 1000 * RUN_S) == 1000 * (RUN_S - 10)


@pytest.mark.parametrize("gap", [(0, 0), (390, 900)])
def test_a_counter_of_coarse_units_passes_its_limit(gap: tuple[float, float]) -> None:
    unit, limit = 3.6e5, 36e5
    times = np.arange(0, RUN_S + 10, 10.0)
    times = times[(times <= gap[0]) | (times >= gap[1])]
    # 5 kW are one unit of 0.1 kWh in 72 s: most readings are those before.
    curve = curve_of(1000 * times, np.floor(5000 * times / unit) * unit % limit, "counter", limit)
    assert curve.resets == 0
    assert used(curve) == pytest.approx(exact("constant"), abs=unit)


@pytest.mark.parametrize("wrong", [9e12, 0.0], ids=["above", "below"])
@pytest.mark.parametrize("wraps_at", [None, 1e13])
def test_one_wrong_reading_of_a_counter_is_left_out(wrong: float, wraps_at: float | None) -> None:
    times = np.arange(0.0, 601.0, 10.0)
    counter = 1e9 + SHAPES["constant"][1](times)
    counter[31] = wrong
    curve = curve_of(1000 * times, counter, "counter", wraps_at)
    assert used(curve, 0, 600) == pytest.approx(exact("constant", 0, 600), rel=1e-9)
    assert curve.resets == 0


def test_any_part_of_a_run_has_its_own_energy() -> None:
    times = readings("waves of epochs", 10.0, "whole")
    curve = curve_of(1000 * times, SHAPES["waves of epochs"][0](times), "instant")
    for begin_s, end_s in ((0, 3), (123.4, 456.7), (3599, 3600)):
        assert used(curve, begin_s, end_s) == pytest.approx(exact("waves of epochs", begin_s, end_s), rel=1e-3)


def test_rows_in_any_order_and_repeated_rows_change_nothing() -> None:
    times = readings("ramp", 10.0, "whole")
    values = SHAPES["ramp"][0](times)
    order = np.random.default_rng(1).permutation(len(times))
    again = np.concatenate([times[order], times[:5]]), np.concatenate([values[order], values[:5]])
    assert used(curve_of(1000 * again[0], again[1], "instant")) == pytest.approx(exact("ramp"))


def test_gaps_and_resets_are_told_from_what_was_read() -> None:
    times = np.array([0.0, 10, 20, 50, 60])
    curve = curve_of(1000 * times, np.full(5, 100.0), "instant")
    assert curve.covered_ms(0, 60_000) == 30_000
    assert (curve.longest_s(0, 60_000), curve.interval_s, curve.readings(0, 60_000)) == (30, 10, 5)
    assert curve.ends_s(-5000, 61_000) == 6
    counter = curve_of(1000 * times, np.array([500.0, 600, 30, 330, 430]), "counter")
    assert counter.covered_ms(0, 60_000) == 50_000, "a counter says what was used in a gap, and not across a reset"
    assert counter.used(0, 60_000) == pytest.approx(100 + 100 + 300 + 100)


@pytest.mark.parametrize("kind", ["counter", "instant", "average"])
def test_nothing_is_used_outside_of_the_readings(kind: Kind) -> None:
    curve = curve_of(np.array([0.0, 10_000, 20_000]), np.array([0.0, 50, 100]), kind)
    assert curve.used(-50_000, 0) == curve.used(20_000, 90_000) == 0
    assert curve.used(-50_000, 90_000) == curve.used(0, 20_000)
