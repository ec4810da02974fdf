"""Random search: the baseline that a tuner is compared with."""

from __future__ import annotations

from hyperopt import rand

from aiperf.config.space import Hyperparameters, Space
from replica.search.lanes import ALL, Lane
from replica.search.tuners.contract import Tried
from replica.search.tuners.drawing import draw


def suggest(space: Space, tried: Tried, seed: int, lane: Lane = ALL) -> Hyperparameters:
    """Hyperparameters drawn from their distributions, whatever the results."""
    return draw(space, tried, seed, lane, rand.suggest)
