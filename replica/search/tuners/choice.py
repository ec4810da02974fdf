"""The choice among suggestions that all tuners share: a free one, at a place of the partition."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from aiperf.config.space import Hyperparameters
from replica.search.partitions import Partition
from replica.search.tuners.contract import Tried

SUGGESTIONS = 100
"""Most draws for one suggestion: enough for a free one in each of the 16 partitions."""


def first_free(tried: Tried, partition: Partition, drawn: Iterator[Hyperparameters]) -> Hyperparameters:
    """Give the first free suggestion at a place of the partition; else one at another place.

    Free means that it fits and is not being tried.

    If none is free, give the first one drawn. `drawn` has no repetitions, and at least one.
    """
    first, too_large = next(drawn), _smallest_too_large(tried)

    def free(suggestion: Hyperparameters) -> bool:
        # Memory grows with the batch: what did not fit once will not fit when it is larger.
        if too_large is not None and int(suggestion["batch_size"]) >= too_large:
            return False
        return suggestion not in tried.pending and tried.fits(suggestion)

    others: list[Hyperparameters] = []
    for place, suggestion in enumerate(filter(free, chain((first,), drawn))):
        if partition.holds(place):
            return suggestion
        others.append(suggestion)
    # Other partitions that find no place take others of these, as far as they go.
    return others[partition.index % len(others)] if others else first


def _smallest_too_large(tried: Tried) -> int | None:
    """The smallest batch that ran out of memory."""
    too_large = [r.hyperparameters for r in tried.results if r.out_of_memory]
    batches = [int(hyperparameters["batch_size"]) for hyperparameters in too_large if "batch_size" in hyperparameters]
    return min(batches, default=None)
