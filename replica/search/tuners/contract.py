"""The contract of a tuner, and the choice of a free suggestion that all tuners share."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from math import isfinite
from typing import Protocol

from aiperf.config.space import Hyperparameters, Space
from aiperf.rules.schedule import draws_at_random
from replica.search.partitions import Partition


@dataclass(frozen=True, slots=True)
class Result:
    """Hyperparameters and their accuracy, between 0 and 1; `out_of_memory` ones did not fit."""

    hyperparameters: Hyperparameters
    accuracy: float
    out_of_memory: bool = False


@dataclass(frozen=True, slots=True)
class Tried:
    """The knowledge of a space: results, points that are being tried, and what is allowed.

    `fits` is False for hyperparameters that the accelerator's memory does not take, or whose
    training would repeat an earlier one.
    """

    results: tuple[Result, ...] = ()
    pending: tuple[Hyperparameters, ...] = ()
    fits: Callable[[Hyperparameters], bool] = lambda hyperparameters: True

    @property
    def measured(self) -> tuple[Result, ...]:
        """Results with an accuracy; a NaN carries no information."""
        return tuple(result for result in self.results if isfinite(result.accuracy) and not result.out_of_memory)

    @property
    def begins(self) -> bool:
        """True if too little is known to learn from: the next point is drawn at random."""
        running, done = len(self.pending), sum(isfinite(result.accuracy) for result in self.results)
        return draws_at_random(done, running)


class Tuner(Protocol):
    """A tuner is a pure function of its arguments; accuracy is to be maximised."""

    def __call__(self, space: Space, tried: Tried, seed: int, partition: Partition = ..., /) -> Hyperparameters:
        """Suggest a value for every parameter of the space.

        As long as the space has such a suggestion, it is not one of `tried.pending`, `tried.fits`
        allows it, and its batch is smaller than every batch that ran out of memory. Partitions that
        ask with the same history and seed get different suggestions while the space has enough.
        """


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
