"""Random search: the baseline that a tuner is compared with."""

from hyperopt import rand

from aiperf.config.space import Hyperparameters, Space
from replica.search.partitions import ALL, Partition
from replica.search.tuners.contract import Tried
from replica.search.tuners.drawing import draw


def suggest(space: Space, tried: Tried, seed: int, partition: Partition = ALL) -> Hyperparameters:
    """Draw hyperparameters from their distributions, whatever the results."""
    return draw(space, tried, seed, partition, rand.suggest)
