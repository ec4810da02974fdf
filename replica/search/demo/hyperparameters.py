"""`aiperf hpo`: the tuner run step by step against a synthetic objective, without training.

The objectives are standard test functions (Surjanovic and Bingham, Virtual Library of Simulation Experiments) on
the coordinates of a
mixed space, scaled to accuracies between 0 and 1: the larger the better.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import cos, exp, log, pi

from aiperf.config.space import Parameter, Point, Space, Value
from aiperf.seeds import fold_seed
from replica.search.tuner import Result, Tried, suggest, suggest_randomly

STRATEGIES = {"tpe": suggest, "random": suggest_randomly}

SPACE: Space = (
    Parameter("kernel_size", "choice", (2, 3, 4, 5)),
    Parameter("batch_size", "randint", (16, 513)),
    Parameter("learning_rate", "loguniform", (1e-3, 1.0)),
    Parameter("momentum", "uniform", (0.5, 0.99)),
    Parameter("label_smoothing", "quniform", (0.0, 0.3, 0.05)),
)

OPTIMUM = (1 / 3, 0.6, 0.7, 0.8, 0.35)
"""Where the objectives are largest, as coordinates between 0 and 1."""


def coordinates(point: Point) -> list[float]:
    """Every value of a point between 0 and 1, on the scale that its distribution is uniform on."""
    return [_coordinate(parameter, point[parameter.name]) for parameter in SPACE]


def _coordinate(parameter: Parameter, value: Value) -> float:
    if parameter.kind == "choice":
        return parameter.values.index(value) / (len(parameter.values) - 1)
    low, high = parameter.values[:2]
    if parameter.kind == "loguniform":
        return log(float(value) / float(low)) / log(float(high) / float(low))
    return (float(value) - float(low)) / (float(high) - float(low))


def _offsets(point: Point) -> list[float]:
    return [u - best for u, best in zip(coordinates(point), OPTIMUM, strict=True)]


def _sphere(point: Point) -> float:
    """One broad hill."""
    return exp(-2 * sum(d * d for d in _offsets(point)))


def _rosenbrock(point: Point) -> float:
    """A bent valley: coordinates depend on each other."""
    x = [1 + 2 * d for d in _offsets(point)]
    total = sum(10 * (b - a * a) ** 2 + (1 - a) ** 2 for a, b in pairwise(x))
    return 1 / (1 + total / 10)


def _rastrigin(point: Point) -> float:
    """A hill with many small ones on it."""
    total = sum(d * d * 20 + 0.5 * (1 - cos(4 * pi * d)) for d in _offsets(point))
    return 1 / (1 + total / 5)


OBJECTIVES: dict[str, Callable[[Point], float]] = {
    "sphere": _sphere,
    "rosenbrock": _rosenbrock,
    "rastrigin": _rastrigin,
}
"""Every objective by name."""


@dataclass(frozen=True, slots=True)
class HpoStep:
    """One suggestion, its value, and the best so far."""

    point: Point
    value: float
    best: float


def steps(objective: str, strategy: str, number: int, seed: int) -> Iterator[HpoStep]:
    """Suggest and evaluate, so many times."""
    results: list[Result] = []
    for step in range(number):
        point = STRATEGIES[strategy](SPACE, Tried(tuple(results)), fold_seed(seed, "hpo", step, 0))
        value = OBJECTIVES[objective](point)
        results.append(Result(point, value))
        yield HpoStep(point, value, max(result.accuracy for result in results))
