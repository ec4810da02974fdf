"""A space of hyperparameters in NNI's format, `{"name": {"_type": ..., "_value": ...}}`.

Names that a trial knows: `kernel_size` (of the blocks that deepening inserted), `batch_size`
(images per accelerator and step), `learning_rate`, `momentum`, `label_smoothing`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiperf.errors import ConfigError

Value = int | float | str
Hyperparameters = dict[str, Value]
"""Values by name of the hyperparameter."""

KNOWN = ("kernel_size", "batch_size", "learning_rate", "momentum", "label_smoothing")
WHOLE = frozenset({"kernel_size", "batch_size"})
"""Hyperparameters that are whole numbers of at least 1."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One hyperparameter: name, NNI's kind of distribution, and its numbers or options."""

    name: str
    kind: str
    values: tuple[Any, ...]


Space = tuple[Parameter, ...]


def _options(values: list[Any]) -> str | None:
    plain = values and all(isinstance(value, int | float | str) and not isinstance(value, bool) for value in values)
    return None if plain else "_value must list at least one number or text"


def _numbers(count: int, check: Callable[..., str | None]) -> Callable[[list[Any]], str | None]:
    def problem(values: list[Any]) -> str | None:
        if len(values) != count or not all(type(value) in (int, float) for value in values):
            return f"_value must be {count} numbers"
        return check(*values)

    return problem


def _ordered(low: float, high: float, quantum: float = 1.0) -> str | None:
    if low >= high:
        return f"the lower bound {low} must be below the upper bound {high}"
    return None if quantum > 0 else f"the quantum {quantum} must be above 0"


def _positive(low: float, high: float, quantum: float = 1.0) -> str | None:
    return _ordered(low, high, quantum) or (None if low > 0 else f"the lower bound {low} must be above 0")


def _spread(_: float, sigma: float, quantum: float = 1.0) -> str | None:
    return None if sigma > 0 and quantum > 0 else "deviation and quantum must be above 0"


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
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError([f"{path}: cannot be read as JSON: {error}"]) from None
    if not isinstance(document, dict) or not document:
        raise ConfigError([f"{path}: must be an object with one entry per hyperparameter"])
    problems = [f"{path}: {name}: {text}" for name, entry in document.items() for text in _problems(name, entry, known)]
    if problems:
        raise ConfigError(problems)
    return tuple(Parameter(name, entry["_type"], tuple(entry["_value"])) for name, entry in document.items())


def _problems(name: str, entry: object, known: tuple[str, ...]) -> list[str]:
    problems = [] if name in known else [f"unknown hyperparameter; known: {', '.join(known)}"]
    if not isinstance(entry, dict) or entry.keys() != {"_type", "_value"}:
        return [*problems, "must be an object with _type and _value"]
    kind, values = entry["_type"], entry["_value"]
    if kind not in CHECKS:
        return [*problems, f"_type is {kind!r}; known: {', '.join(CHECKS)}"]
    if not isinstance(values, list):
        return [*problems, "_value must be a list"]
    found = CHECKS[kind](values)
    if found is None and name in WHOLE and not _is_whole(kind, values):
        found = "must be whole numbers of at least 1: use choice or randint"
    return [*problems, found] if found else problems


def _is_whole(kind: str, values: list[Any]) -> bool:
    return kind in ("choice", "randint") and all(type(value) is int and value >= 1 for value in values)
