"""Numbers for people: always as many digits, with the prefix that suits them."""

import pytest

from aiperf.cli.units import count, interval, scale_of, si


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0, "0 OPS"),
        (0.0, "0 OPS"),
        (7, "7 OPS"),
        (999, "999 OPS"),
        (0.0123456, "0.01235 OPS"),
        (0.22, "0.2200 OPS"),
        (24.6, "24.60 OPS"),
        (24.6e6, "24.60 MOPS"),
        (9.53e12, "9.530 TOPS"),
        (9.9996e12, "10.00 TOPS"),
        (999.96e9, "1.000 TOPS"),
        (999.94e9, "999.9 GOPS"),
        (3.36e20, "336.0 EOPS"),
        (2e22, "20.00 ZOPS"),
        (9.9996e23, "1.000 YOPS"),
        (5e33, "5000 QOPS"),
        (-1.5e9, "-1.500 GOPS"),
        (1000, "1.000 kOPS"),
        (float("inf"), "inf OPS"),
    ],
)
def test_a_number_has_four_digits_and_a_prefix(value: float | None, text: str) -> None:
    assert si(value, "OPS") == text


def test_fewer_digits_for_a_sentence() -> None:
    assert si(42.34e9, "OPS", 3) == "42.3 GOPS"
    assert si(5) == "5"


def test_an_axis_and_its_values_have_one_prefix() -> None:
    assert [scale_of(value) for value in (0, 999, 1e3, 2.5e15)] == [("", 1.0), ("", 1.0), ("k", 1e3), ("P", 1e15)]


def test_both_ends_of_an_interval_share_the_unit() -> None:
    assert interval(6.687e9, 77.98e9, "OPS") == "6.687 to 77.98 GOPS"
    assert interval(6.687e8, 77.98e9, "OPS") == "668.7 MOPS to 77.98 GOPS"


def test_one_of_a_thing_has_no_s() -> None:
    assert [count(number, "trial") for number in (0, 1, 2, 4096)] == ["0 trials", "1 trial", "2 trials", "4,096 trials"]
