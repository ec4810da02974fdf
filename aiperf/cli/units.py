"""Units, and numbers as people read them."""

from __future__ import annotations

MIB = 2**20
GIB = 2**30
"""Bytes."""

PREFIXES = (("E", 1e18), ("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3))


def si(value: float | None, unit: str = "") -> str:
    """Four digits with an SI prefix, such as 1.234 TOPS; a dash for None."""
    if value is None:
        return "-"
    for prefix, size in PREFIXES:
        if abs(value) >= size:
            return f"{value / size:.4g} {prefix}{unit}".rstrip()
    return f"{value:.4g} {unit}".rstrip()


def percent(value: float | None) -> str:
    """A fraction as percent with one digit; a dash for None."""
    return "-" if value is None else f"{100 * value:.1f} %"


def number(value: float | None, digits: int = 4) -> str:
    """A plain number; a dash for None."""
    return "-" if value is None else f"{value:.{digits}f}"
