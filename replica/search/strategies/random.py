"""Random morphing: the baseline of search strategies, and its variant for rehearsals."""

import random

from aiperf.errors import TrialFailedError
from aiperf.network.architecture import Architecture
from replica.search.observations import Observations
from replica.search.outlines import whole
from replica.search.partitions import ALL, Partition
from replica.search.strategies.contract import Proposal, partition_key
from search_space.limits import Limits
from search_space.sampling import random_morph

MAX_DRAWS = 1600
"""Draws before the space is taken to be exhausted."""


class RandomStrategy:
    """The proposal of a random morph of a random completed architecture."""

    partitions = True
    learns = True

    def __init__(self, initial: Architecture, limits: Limits) -> None:
        self._initial = initial
        self._limits = limits

    def propose(self, observations: Observations, rng: random.Random, partition: Partition = ALL) -> Proposal:
        """Propose the next architecture to train.

        Raises TrialFailedError ("search") if none can be found.
        """
        pool = observations.completed
        for _ in range(MAX_DRAWS):
            parent = whole(rng.choice(pool).architecture if pool else rng.choice([self._initial]))
            morph, child = random_morph(parent, rng)
            known = child.hash == self._initial.hash or observations.has(child.hash)
            if not known and partition.holds(partition_key(child)) and self._limits.refusal(child) is None:
                return Proposal(child, parent.hash, (morph,))
        raise TrialFailedError("search", "no new architecture within the limits was found")


class UnguidedStrategy(RandomStrategy):
    """Random morphs in any partition, for rehearsals whose search is modelled.

    In partitions one draw in sixteen is used, and all of them are built. Replicas that ask at the
    same moment have other seeds, and may still draw the same.
    """

    partitions = False
    learns = False

    def propose(self, observations: Observations, rng: random.Random, partition: Partition = ALL) -> Proposal:
        """Propose the next architecture to train.

        Raises TrialFailedError ("search") if none can be found.
        """
        return super().propose(observations, rng, ALL)
