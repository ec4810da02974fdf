"""A space of hyperparameters in NNI's format, `{"name": {"_type": ..., "_value": ...}}`.

Names that a trial knows: `kernel_size` (of the blocks that deepening inserted), `batch_size`
(images per accelerator and step), `learning_rate`, `momentum`, `label_smoothing`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiperf.errors import ConfigError, UsageError
from aiperf.untrusted.documents import PATH_CHARACTERS, read_json
from aiperf.untrusted.text import VALUE_CHARACTERS, cut, has_control, shown

Value = int | float | str
Hyperparameters = dict[str, Value]
"""Values by name of the hyperparameter."""

KNOWN = ("kernel_size", "batch_size", "learning_rate", "momentum", "label_smoothing")
WHOLE = frozenset({"kernel_size", "batch_size"})
"""Hyperparameters that are whole numbers of at least 1."""

RANGES: dict[str, tuple[float, float]] = {
    "kernel_size": (1, 1000),
    "batch_size": (1, 1_000_000),
    "learning_rate": (0, 1000),
    "momentum": (0, math.nextafter(1, 0)),
    "label_smoothing": (0, math.nextafter(1, 0)),
}
"""Least and greatest value that a trial can train with, as for the settings of the same name."""

DEVIATIONS = 6
"""A normal distribution has no bounds: it counts as this many deviations to each side."""

MOST = 1e15
"""Greatest number of a space."""

LEAST_QUANTUM = 1e-9

MOST_BYTES = 64 * 1024
MOST_OPTIONS = 1000


@dataclass(frozen=True, slots=True)
class Parameter:
    """One hyperparameter: name, NNI's kind of distribution, and its numbers or options."""

    name: str
    kind: str
    values: tuple[Any, ...]


Space = tuple[Parameter, ...]


def _options(values: list[Any]) -> str | None:
    if not values or len(values) > MOST_OPTIONS or not all(_is_number(value) or _is_text(value) for value in values):
        return f"_value must list 1 to {MOST_OPTIONS} numbers or texts"
    return None


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and -MOST <= value <= MOST  # type: ignore[operator]


def _is_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= VALUE_CHARACTERS and not has_control(value)


def _numbers(count: int, check: Callable[..., str | None]) -> Callable[[list[Any]], str | None]:
    def problem(values: list[Any]) -> str | None:
        if len(values) != count or not all(map(_is_number, values)):
            return f"_value must be {count} finite numbers"
        return check(*values)

    return problem


def _ordered(low: float, high: float, quantum: float = 1.0) -> str | None:
    if low >= high:
        return f"the lower bound {low} must be below the upper bound {high}"
    return None if quantum >= LEAST_QUANTUM else f"the quantum {quantum} must be at least {LEAST_QUANTUM:g}"


def _positive(low: float, high: float, quantum: float = 1.0) -> str | None:
    return _ordered(low, high, quantum) or (None if low > 0 else f"the lower bound {low} must be above 0")


def _spread(_: float, sigma: float, quantum: float = 1.0) -> str | None:
    return None if sigma > 0 and quantum >= LEAST_QUANTUM else "deviation and quantum must be above 0"


def _whole(low: float, high: float) -> str | None:
    return _ordered(low, high) or (None if low == int(low) and high == int(high) else "bounds must be whole numbers")


CHECKS: dict[str, Callable[[list[Any]], str | None]] = {
    "choice": _options,
    "randint": _numbers(2, _whole),
    "uniform": _numbers(2, _ordered),
    "quniform": _numbers(3, _ordered),
    "loguniform": _numbers(2, _positive),
    "qloguniform": _numbers(3, _positive),
    "normal": _numbers(2, _spread),
    "qnormal": _numbers(3, _spread),
    "lognormal": _numbers(2, _spread),
    "qlognormal": _numbers(3, _spread),
}
"""NNI's kinds of distributions, each with a check of its `_value`: the problem, or None."""


def read_space(path: Path, known: tuple[str, ...] = KNOWN) -> Space:
    """Read a space. Raises ConfigError with all problems of the file at once."""
    try:
        document = read_json(path, MOST_BYTES)
    except UsageError as error:
        raise ConfigError(list(error.problems)) from None
    if not isinstance(document, dict) or not document:
        raise ConfigError([f"{path}: must be an object with one entry per hyperparameter"])
    problems = [
        f"{cut(str(path), PATH_CHARACTERS)}: {cut(name, VALUE_CHARACTERS)}: {text}"
        for name, entry in document.items()
        for text in _problems(name, entry, known)
    ]
    if problems:
        raise ConfigError(problems)
    return tuple(Parameter(name, entry["_type"], tuple(entry["_value"])) for name, entry in document.items())


def _problems(name: str, entry: object, known: tuple[str, ...]) -> list[str]:
    problems = [] if name in known else [f"unknown hyperparameter; known: {', '.join(known)}"]
    if not isinstance(entry, dict) or entry.keys() != {"_type", "_value"}:
        return [*problems, "must be an object with _type and _value"]
    kind, values = entry["_type"], entry["_value"]
    if not isinstance(kind, str) or kind not in CHECKS:
        return [*problems, f"_type is {shown(kind)}; known: {', '.join(CHECKS)}"]
    if not isinstance(values, list):
        return [*problems, "_value must be a list"]
    found = CHECKS[kind](values)
    if found is None and name in WHOLE and not _is_whole(kind, values):
        found = "must be whole numbers of at least 1: use choice or randint"
    if found is None and name in RANGES and known is KNOWN:
        found = _out_of_range(kind, values, *RANGES[name])
    return [*problems, found] if found else problems


def _is_whole(kind: str, values: list[Any]) -> bool:
    return kind in ("choice", "randint") and all(type(value) is int and value >= 1 for value in values)


def _out_of_range(kind: str, values: list[Any], least: float, most: float) -> str | None:
    """The problem if a trial could get a value that it cannot train with."""
    allowed = f"allowed is {least:g} to below 1" if most < 1 else f"allowed is {least:g} to {most:g}"
    given = values if kind == "choice" else _bounds(kind, values)
    wrong = [value for value in given if not _is_number(value) or not least <= value <= most]
    return f"found {shown(wrong[0])}; {allowed}" if wrong else None


def _bounds(kind: str, values: list[Any]) -> tuple[float, float]:
    """Least and greatest value of a distribution."""
    low, high = values[:2]
    if kind == "randint":
        high -= 1  # NNI excludes it
    if "normal" in kind:
        low, high = low - DEVIATIONS * high, low + DEVIATIONS * high
    if "lognormal" in kind:
        # The exponential of 710 is beyond all floats.
        low, high = math.exp(min(low, 700.0)), math.exp(min(high, 700.0))
    if kind.startswith("q"):
        given = (low, high)
        low, high = (round(bound / values[2]) * values[2] for bound in given)
        if "normal" not in kind:  # NNI keeps rounded values within the bounds
            low, high = max(low, given[0]), min(high, given[1])
    return low, high
