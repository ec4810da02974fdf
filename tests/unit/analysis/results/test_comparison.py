"""Measures of two runs: what is worse, also where one of them has none of it."""

import pytest

from analysis.results.comparison import LEAST_SHARE, ONE, Measure


@pytest.mark.parametrize(
    ("first", "second", "better", "least", "ratio", "worse"),
    [
        (0, 21, "less", ONE, None, True),
        (0, 0, "less", ONE, None, False),
        (20, 21, "less", ONE, 1.05, False),
        (20, 40, "less", ONE, 2.0, True),
        (0.0, 0.14, "less", LEAST_SHARE, None, True),
        (0.000026, 0.0027, "less", LEAST_SHARE, None, False),
        (0.2, 0.3, "less", LEAST_SHARE, 1.5, True),
        (0.02, 0.025, "less", LEAST_SHARE, 1.25, False),
        (0.0, 1e-9, "less", 0.0, None, True),
        (0.0, 5.0, "more", 0.0, None, False),
        (1e12, 0.9e12, "more", 0.0, 0.9, True),
        (5.0, 0.0, "more", 0.0, 0.0, True),
        (None, 5.0, "less", 0.0, None, False),
        (0, 9, "neither", 0.0, None, False),
    ],
)
def test_a_measure_is_compared_absolutely_where_the_first_is_0_or_tiny(
    first: float | None, second: float, better: str, least: float, ratio: float | None, worse: bool
) -> None:
    measure = Measure("x", first, second, better, least)
    assert measure.ratio == pytest.approx(ratio)
    assert measure.worse is worse
