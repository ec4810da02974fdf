"""The choice among suggestions that all tuners share: one that is free, at a place of the lane."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from aiperf.config.space import Hyperparameters
from replica.search.lanes import Lane
from replica.search.tuners.contract import Tried

SUGGESTIONS = 100
"""Most draws for one suggestion: enough for a free one in each of the 16 lanes."""


def first_free(tried: Tried, lane: Lane, drawn: Iterator[Hyperparameters]) -> Hyperparameters:
    """The first free suggestion at a place of the lane that fits; else one at another place.

    If none fits, the first one drawn. `drawn` has no repetitions, and at least one suggestion.
    """
    first, too_large = next(drawn), _smallest_too_large(tried)

    def free(suggestion: Hyperparameters) -> bool:
        if too_large is not None and int(suggestion["batch_size"]) >= too_large:
            return False
        return suggestion not in tried.pending and tried.fits(suggestion)

    others: list[Hyperparameters] = []
    for place, suggestion in enumerate(filter(free, chain((first,), drawn))):
        if lane.holds(place):
            return suggestion
        others.append(suggestion)
    return others[lane.index % len(others)] if others else first


def _smallest_too_large(tried: Tried) -> int | None:
    """The smallest batch that ran out of memory."""
    too_large = [r.hyperparameters for r in tried.results if r.out_of_memory]
    batches = [int(hyperparameters["batch_size"]) for hyperparameters in too_large if "batch_size" in hyperparameters]
    return min(batches, default=None)
