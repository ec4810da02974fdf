"""Hyperparameters drawn without a library, for rehearsals whose search is modelled.

The distributions are those of `aiperf.config.space`, as NNI describes them.
"""

import math
import random
from collections.abc import Callable, Iterator

from aiperf.config.space import Hyperparameters, Parameter, Space, Value
from replica.search.partitions import ALL, Partition
from replica.search.tuners.contract import SUGGESTIONS, Tried, first_free


def suggest(space: Space, tried: Tried, seed: int, partition: Partition = ALL) -> Hyperparameters:
    """Draw hyperparameters from their distributions, whatever the results."""
    return first_free(tried, partition, _distinct(space, random.Random(seed)))


def _distinct(space: Space, rng: random.Random) -> Iterator[Hyperparameters]:
    drawn: list[Hyperparameters] = []
    for _ in range(SUGGESTIONS):
        suggestion = {parameter.name: _drawn(parameter, rng) for parameter in space}
        if suggestion not in drawn:
            drawn.append(suggestion)
            yield suggestion


def _rounded(value: float, low: float, high: float, quantum: float) -> float:
    return float(min(max(round(value / quantum) * quantum, low), high))


def _drawn(parameter: Parameter, rng: random.Random) -> Value:
    draw = _DISTRIBUTIONS[parameter.kind]
    return draw(rng, *parameter.values)


_DISTRIBUTIONS: dict[str, Callable[..., Value]] = {
    "choice": lambda rng, *options: rng.choice(options),
    "randint": lambda rng, low, high: rng.randrange(int(low), int(high)),
    "uniform": lambda rng, low, high: rng.uniform(low, high),
    "quniform": lambda rng, low, high, quantum: _rounded(rng.uniform(low, high), low, high, quantum),
    # exp(log(x)) may differ from x in its last bits, and lie beyond the bounds.
    "loguniform": lambda rng, low, high: min(max(math.exp(rng.uniform(math.log(low), math.log(high))), low), high),
    "qloguniform": lambda rng, low, high, quantum: _rounded(
        math.exp(rng.uniform(math.log(low), math.log(high))), low, high, quantum
    ),
    "normal": lambda rng, mean, sigma: rng.gauss(mean, sigma),
    "qnormal": lambda rng, mean, sigma, quantum: _rounded(rng.gauss(mean, sigma), -math.inf, math.inf, quantum),
    "lognormal": lambda rng, mean, sigma: math.exp(rng.gauss(mean, sigma)),
    "qlognormal": lambda rng, mean, sigma, quantum: _rounded(
        math.exp(rng.gauss(mean, sigma)), -math.inf, math.inf, quantum
    ),
}
