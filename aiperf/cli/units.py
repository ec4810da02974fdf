"""Units, and numbers as people read them."""

from math import isfinite

MIB = 2**20
GIB = 2**30
"""Bytes."""

PREFIXES = (
    ("Q", 1e30),
    ("R", 1e27),
    ("Y", 1e24),
    ("Z", 1e21),
    ("E", 1e18),
    ("P", 1e15),
    ("T", 1e12),
    ("G", 1e9),
    ("M", 1e6),
    ("k", 1e3),
)
"""Those of the SI, by their size; the last ones are of 2022 (resolution 3 of the 27th CGPM)."""


def scale_of(value: float) -> tuple[str, float]:
    """The SI prefix that suits a value, and its size: G and 1e9 for 2.5e9."""
    for prefix, size in PREFIXES:
        if abs(value) >= 0.99995 * size:  # four digits round up to the next prefix
            return prefix, size
    return "", 1.0


def si(value: float | None, unit: str = "", digits: int = 4) -> str:
    """Format a value with this many digits and an SI prefix, such as 1.230 TOPS; a dash for None.

    Whole numbers without a prefix stay whole.
    """
    if value is None:
        return "-"
    if not isfinite(value):
        return f"{value} {unit}".rstrip()
    prefix, size = scale_of(value)
    scaled = value / size
    if not prefix and (isinstance(value, int) or value == 0):
        return f"{value:.0f} {unit}".rstrip()
    if abs(value) < 1:
        return f"{value:#.{digits}g} {unit}".rstrip()
    exponent = int(f"{scaled:.{digits - 1}e}".partition("e")[2])  # of the rounded value
    return f"{scaled:.{max(0, digits - 1 - exponent)}f} {prefix}{unit}".rstrip()


def interval(low: float | None, high: float | None, unit: str = "") -> str:
    """Both ends of an interval, with one unit if it is the same; a dash if it is unknown.

    Without a unit they are plain numbers.
    """
    if low is None or high is None:
        return "-"
    if not unit:
        return f"{number(low)} to {number(high)}"
    lower, _, its_unit = si(low, unit).partition(" ")
    upper = si(high, unit)
    return f"{lower} to {upper}" if its_unit == upper.partition(" ")[2] else f"{lower} {its_unit} to {upper}"


def percent(value: float | None) -> str:
    """A fraction as percent with one digit; a dash for None."""
    return "-" if value is None else f"{100 * value:.1f} %"


def count(number: int, noun: str) -> str:
    """A number and its noun, such as 1 replica or 4,096 trials."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def of_asked(present: int, asked: int | None) -> str:
    """A number, and the number that was asked for if it is another: 4 of 8."""
    return f"{present:,}" if asked is None or present == asked else f"{present:,} of {asked:,}"


def number(value: float | None, digits: int = 4) -> str:
    """A plain number; a dash for None."""
    return "-" if value is None else f"{value:.{digits}f}"
