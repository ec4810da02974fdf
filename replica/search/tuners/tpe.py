"""The tree-structured Parzen estimator (Bergstra et al. 2011), by hyperopt."""

from functools import partial

from hyperopt import rand, tpe

from aiperf.config.space import Hyperparameters, Space
from replica.search.partitions import ALL, Partition
from replica.search.tuners.contract import Tried
from replica.search.tuners.drawing import draw, good_share


def suggest(space: Space, tried: Tried, seed: int, partition: Partition = ALL) -> Hyperparameters:
    """Suggest the next hyperparameters, learned from the results of the run (`evidence`)."""
    # hyperopt counts the suggestions that are drawn for other partitions as trials, too, and would
    # end its draws at random early: `begins` decides instead.
    algorithm = rand.suggest if tried.begins else partial(tpe.suggest, n_startup_jobs=0, gamma=good_share(tried))
    return draw(space, tried, seed, partition, algorithm)
