"""`aiperf search`: a strategy run step by step against a synthetic objective, without training."""

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import exp, log2

import numpy as np

from aiperf.network.architecture import Architecture
from aiperf.network.layers import Conv
from aiperf.network.operations import count
from replica.search.observations import Observation, Observations
from replica.search.partitions import ALL
from replica.search.strategies import STRATEGIES
from search_space.limits import Limits, growth_limits
from search_space.resnet import resnet
from search_space.sampling import random_morph


@dataclass(frozen=True, slots=True)
class Growth:
    """The growth of an architecture relative to another one."""

    operations: float
    """Logarithm to base 2 of the ratio of operations."""
    depth: int
    """Layers with weights added."""
    skips: int
    """Additions added."""
    kernel: float
    """Mean kernel side minus that of the other."""
    width: float
    """Logarithm to base 2 of the ratio of mean widths."""


def growth(architecture: Architecture, initial: Architecture) -> Growth:
    """Compare an architecture with the initial one."""
    return Growth(
        operations=log2(count(architecture).operations.total / count(initial).operations.total),
        depth=architecture.depth - initial.depth,
        skips=_additions(architecture) - _additions(initial),
        kernel=_mean(architecture, _kernel) - _mean(initial, _kernel),
        width=log2(_mean(architecture, _filters) / _mean(initial, _filters)),
    )


def _additions(architecture: Architecture) -> int:
    return sum(node.layer.kind == "add" for node in architecture.nodes)


def _kernel(layer: Conv) -> int:
    return layer.kernel[0]


def _filters(layer: Conv) -> int:
    return layer.filters


def _mean(architecture: Architecture, of: Callable[[Conv], int]) -> float:
    return float(np.mean([of(node.layer) for node in architecture.nodes if isinstance(node.layer, Conv)]))


def _depth(grown: Growth) -> float:
    """The value where layers help, each less than the one before, and operations cost a little."""
    return 0.6 + 0.35 * (1 - exp(-max(grown.depth, 0) / 8)) - 0.04 * max(grown.operations, 0.0)


def _peak(grown: Growth) -> float:
    """The value around a peak at 1.5 times the operations and six layers more."""
    return 0.5 + 0.45 * exp(-((grown.operations - 0.585) ** 2) / 0.18 - ((grown.depth - 6) / 6) ** 2)


def _mixture(grown: Growth) -> float:
    """The value where width, larger kernels and skips must work together, and depth costs."""
    gains = (
        1 - exp(-8 * max(grown.width, 0.0)) + 1 - exp(-6 * max(grown.kernel, 0.0)) + 1 - exp(-max(grown.skips, 0) / 3)
    )
    return 0.5 + 0.15 * gains - 0.02 * max(grown.depth - grown.skips, 0)


OBJECTIVES: dict[str, Callable[[Growth], float]] = {"depth": _depth, "peak": _peak, "mixture": _mixture}
"""Objectives by name."""


def evaluate(name: str, architecture: Architecture, initial: Architecture) -> float:
    """The value of an architecture."""
    return min(1.0, max(0.0, OBJECTIVES[name](growth(architecture, initial))))


IMAGE_SIZE = 32
CLASSES = 10


@dataclass(frozen=True, slots=True)
class SearchStep:
    """A proposal: cost in CPU seconds, architecture, its value and the best value so far."""

    seconds: float
    architecture: str
    operations: int
    morphs: int
    value: float
    best: float


@dataclass(frozen=True, slots=True)
class SearchDemo:
    """A search on an objective: `history` architectures to start from, then proposals."""

    objective: str
    strategy: str = "bayesian"
    history: int = 1
    seed: int = 1
    growth: float = 4.0

    def steps(self, number: int) -> Iterator[SearchStep]:
        """Propose and evaluate, this many times. Raises UsageError for an unknown strategy."""
        initial = resnet(50, IMAGE_SIZE, CLASSES)
        limits = growth_limits(initial, self.growth, None, batch_size=64, activation_bytes=4)
        strategy = STRATEGIES.load(self.strategy)(initial, limits)
        observed = [
            Observation(architecture, evaluate(self.objective, architecture, initial))
            for architecture in random_history(initial, limits, self.history, random.Random(self.seed))
        ]
        for step in range(number):
            # A stream for each step, so that the same step of two strategies draws the same.
            rng = random.Random(f"{self.seed}/{step}")
            started = time.process_time()
            proposal = strategy.propose(Observations(tuple(observed)), rng, ALL)
            seconds = time.process_time() - started
            value = evaluate(self.objective, proposal.architecture, initial)
            observed.append(Observation(proposal.architecture, value))
            yield SearchStep(
                seconds=seconds,
                architecture=proposal.architecture.hash,
                operations=count(proposal.architecture).operations.total,
                morphs=len(proposal.morphs),
                value=value,
                best=max(observation.accuracy for observation in observed),
            )


def random_history(initial: Architecture, limits: Limits, number: int, rng: random.Random) -> list[Architecture]:
    """The initial architecture and random descendants of it, within the limits, all different."""
    found = {initial.hash: initial} if number else {}
    while len(found) < number:
        _, child = random_morph(rng.choice(list(found.values())), rng)
        if limits.refusal(child) is None:
            found.setdefault(child.hash, child)
    return list(found.values())
