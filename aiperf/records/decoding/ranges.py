"""Ranges of the numbers in records: what no run can reach is damage, wherever it is found.

Sums and products of numbers in these ranges are finite, and loops over them end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import get_args

from aiperf.records.bodies import AnyBody

LONGEST_MS = 1000 * 3_600_000
"""Longest run. Its timeline has 10,000 points."""

LAST_MS = 32_503_680_000_000
"""The year 3000."""

Range = tuple[int, int]

MANY: Range = (0, 10**15)
"""Exact as a float."""

OF_FIELD: dict[str, Range] = {
    "replica": (0, 10**6), "accelerators": (0, 10**6), "ready": (0, 10**6),
    "trial": (0, 10**9), "base": (0, 10**9), "resumes": (0, 10**9), "weights_from": (0, 10**9),
    "round": (0, 10**6), "point": (0, 10**6), "epoch": (0, 10**6), "epochs": (0, 10**6),
    "images_trained": MANY, "images_evaluated": MANY, "correct": MANY, "sequence": MANY,
    "instance": (0, 10**6), "group": (0, 10**6), "server": (0, 10**6),
    "updates": MANY, "images": MANY, "staleness": MANY, "bytes_exchanged": (0, 1 << 60),
    "further_training": MANY, "further_evaluation": MANY, "memory_bytes": (0, 1 << 60), "compute": MANY,
    "clock_offset_ms": (-LAST_MS, LAST_MS), "duration_ms": (0, LONGEST_MS), "end_ms": (0, LAST_MS),
}  # fmt: skip
"""Least and greatest value of a field, by its name in any body."""

NAMES = frozenset(
    {
        "architecture", "parent", "writer", "digest", "evidence", "weights", "cursor_hash", "fingerprint",
        "source_hash", "trainer", "input", "dataset", "precision", "framework", "kind", "workload",
        "size",
    }
)  # fmt: skip
LONGEST_NAME = 200
"""Fields that name something, and most characters of a name."""

_BOUNDED: dict[type, tuple[str, ...]] = {
    kind: tuple(field.name for field in fields(kind) if field.name in OF_FIELD) for kind in get_args(AnyBody)
}
_NAMED: dict[type, tuple[str, ...]] = {
    kind: tuple(field.name for field in fields(kind) if field.name in NAMES) for kind in get_args(AnyBody)
}


def out_of_range(body: AnyBody) -> str:
    """The first number or name of a body that cannot be, in words; empty if there is none."""
    for name in _BOUNDED[type(body)]:
        low, high = OF_FIELD[name]
        for value in _numbers(getattr(body, name)):
            if not low <= value <= high:
                return f"{name} is {value}; it can be {low} to {high}"
    for name in _NAMED[type(body)]:
        if len(getattr(body, name) or "") > LONGEST_NAME:
            return f"{name} has more than {LONGEST_NAME} characters"
    return ""


def _numbers(value: object) -> Iterator[int]:
    if isinstance(value, int):
        yield value
    elif isinstance(value, tuple):
        yield from value
    elif isinstance(value, dict):
        yield from value.values()
