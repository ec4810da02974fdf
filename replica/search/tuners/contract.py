"""The contract of a tuner: it suggests the hyperparameters of the next training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
