"""Random morphing without partitions: what a rehearsal with a modelled search draws.

In partitions one draw in sixteen is used, and all of them are built. Replicas that ask at the same
moment have other seeds, and may still draw the same.
"""

from __future__ import annotations

import random

from replica.search.observations import Observations
from replica.search.partitions import ALL, Partition
from replica.search.strategies.contract import Proposal
from replica.search.strategies.random import RandomStrategy


class UnguidedStrategy(RandomStrategy):
    """One random morph of a random completed architecture, in whatever partition."""

    partitions = False
    learns = False

    def propose(self, observations: Observations, rng: random.Random, partition: Partition = ALL) -> Proposal:
        """The next architecture to train.

        Raises TrialFailedError ("search") if none can be found.
        """
        return super().propose(observations, rng, ALL)
