"""The contract of a search strategy: it proposes the next architecture of a replica."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from aiperf.network.architecture import Architecture
from replica.search.observations import Observations
from replica.search.partitions import Partition
from search_space.limits import Limits
from search_space.morphisms import Morph


@dataclass(frozen=True, slots=True)
class Proposal:
    """An architecture to train, its parent (None: it is the initial one), and the morphs."""

    architecture: Architecture
    parent: str | None
    morphs: tuple[Morph, ...] = ()


class SearchStrategy(Protocol):
    """A strategy may cache, but a proposal depends on the arguments alone."""

    partitions: bool
    """False if it may propose an architecture of any partition."""
    learns: bool
    """False if new results make its next proposal no better."""

    def propose(self, observations: Observations, rng: random.Random, partition: Partition) -> Proposal:
        """Propose an architecture: new, within the limits, in the partition if it has any.

        New means neither the initial architecture nor one of `observations.hashes`. `parent` is the
        hash of the initial architecture or of a completed one, and `morphs`, at most
        `search_space.morphisms.MAX_MORPHS`, lead from it to the proposal. Raises TrialFailedError
        ("search") if none can be found.
        """


StrategyFactory = Callable[[Architecture, Limits], SearchStrategy]
"""Function that makes the strategy of a search from an initial architecture within limits."""


def partition_key(architecture: Architecture) -> int:
    """The key of an architecture for `Partition.holds`."""
    return int(architecture.hash, 16)
