"""Random morphing without partitions, for rehearsals whose search is modelled.

In partitions one draw in sixteen is used, and all of them are built. Replicas that ask at the same
moment have other seeds, and may still draw the same.
"""

import random

from replica.search.observations import Observations
from replica.search.partitions import ALL, Partition
from replica.search.strategies.contract import Proposal
from replica.search.strategies.random import RandomStrategy


class UnguidedStrategy(RandomStrategy):
    """The proposal of a random morph of a random completed architecture, in any partition."""

    partitions = False
    learns = False

    def propose(self, observations: Observations, rng: random.Random, partition: Partition = ALL) -> Proposal:
        """Propose the next architecture to train.

        Raises TrialFailedError ("search") if none can be found.
        """
        return super().propose(observations, rng, ALL)
