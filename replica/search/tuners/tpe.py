"""The tree-structured Parzen estimator (Bergstra et al. 2011), by hyperopt."""

from __future__ import annotations

from functools import partial

from hyperopt import tpe

from aiperf.config.space import Hyperparameters, Space
from replica.search.lanes import ALL, Lane
from replica.search.tuners.contract import Tried
from replica.search.tuners.drawing import draw

STARTUP_SUGGESTIONS = 20
"""Suggestions drawn at random before the estimator takes over (hyperopt's default)."""


def suggest(space: Space, tried: Tried, seed: int, lane: Lane = ALL) -> Hyperparameters:
    """The next hyperparameters to try, learned from every result of the run."""
    return draw(space, tried, seed, lane, partial(tpe.suggest, n_startup_jobs=STARTUP_SUGGESTIONS))
