"""`aiperf search`: a strategy run step by step against a synthetic objective, without training."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass

from aiperf.network.architecture import Architecture
from aiperf.network.operations import count
from replica.search.demo.objectives import evaluate
from replica.search.observations import Observation, Observations
from replica.search.partitions import ALL
from replica.search.strategies import STRATEGIES
from search_space.limits import Limits, growth_limits
from search_space.resnet import resnet
from search_space.sampling import random_morph

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
