"""`aiperf hpo`: a tuner run step by step against a synthetic objective, without training.

The objectives are standard test functions (Surjanovic and Bingham, Virtual Library of Simulation
Experiments) on the coordinates of a mixed space, scaled to accuracies between 0 and 1.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import cos, exp, log, pi

from aiperf.config.space import Hyperparameters, Parameter, Space, Value
from aiperf.seeds import fold_seed
from replica.search.partitions import ALL
from replica.search.tuners import TUNERS
from replica.search.tuners.contract import Result, Tried

SPACE: Space = (
    Parameter("kernel_size", "choice", (2, 3, 4, 5)),
    Parameter("batch_size", "randint", (16, 513)),
    Parameter("learning_rate", "loguniform", (1e-3, 1.0)),
    Parameter("momentum", "uniform", (0.5, 0.99)),
    Parameter("label_smoothing", "quniform", (0.0, 0.3, 0.05)),
)

OPTIMUM = (1 / 3, 0.6, 0.7, 0.8, 0.35)
"""The maximum of all objectives, as coordinates between 0 and 1."""


def coordinates(hyperparameters: Hyperparameters) -> list[float]:
    """The values as numbers between 0 and 1, on the scale on which they are drawn uniformly."""
    return [_coordinate(parameter, hyperparameters[parameter.name]) for parameter in SPACE]


def _coordinate(parameter: Parameter, value: Value) -> float:
    if parameter.kind == "choice":
        return parameter.values.index(value) / (len(parameter.values) - 1)
    low, high = parameter.values[:2]
    if parameter.kind == "loguniform":
        return log(float(value) / float(low)) / log(float(high) / float(low))
    return (float(value) - float(low)) / (float(high) - float(low))


def _offsets(hyperparameters: Hyperparameters) -> list[float]:
    return [u - best for u, best in zip(coordinates(hyperparameters), OPTIMUM, strict=True)]


def _sphere(hyperparameters: Hyperparameters) -> float:
    """The value on one broad hill."""
    return exp(-2 * sum(d * d for d in _offsets(hyperparameters)))


def _rosenbrock(hyperparameters: Hyperparameters) -> float:
    """The value in a bent valley, where coordinates depend on each other."""
    x = [1 + 2 * d for d in _offsets(hyperparameters)]
    total = sum(10 * (b - a * a) ** 2 + (1 - a) ** 2 for a, b in pairwise(x))
    return 1 / (1 + total / 10)


def _rastrigin(hyperparameters: Hyperparameters) -> float:
    """The value on a hill with many small hills on it."""
    total = sum(d * d * 20 + 0.5 * (1 - cos(4 * pi * d)) for d in _offsets(hyperparameters))
    return 1 / (1 + total / 5)


OBJECTIVES: dict[str, Callable[[Hyperparameters], float]] = {
    "sphere": _sphere,
    "rosenbrock": _rosenbrock,
    "rastrigin": _rastrigin,
}
"""Objectives by name."""


@dataclass(frozen=True, slots=True)
class HpoStep:
    """One suggestion (`point` in the JSON output), its value, and the best value so far."""

    point: Hyperparameters
    value: float
    best: float


def steps(objective: str, strategy: str, number: int, seed: int) -> Iterator[HpoStep]:
    """Suggest and evaluate, this many times. Raises UsageError for an unknown strategy."""
    suggest = TUNERS.load(strategy)
    results: list[Result] = []
    for step in range(number):
        suggestion = suggest(SPACE, Tried(tuple(results)), fold_seed(seed, "hpo", step, 0), ALL)
        value = OBJECTIVES[objective](suggestion)
        results.append(Result(suggestion, value))
        yield HpoStep(suggestion, value, max(result.accuracy for result in results))
