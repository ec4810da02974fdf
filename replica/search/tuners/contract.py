"""The contract of a tuner: it suggests the hyperparameters of the next training."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from aiperf.config.space import Hyperparameters, Space
from replica.search.lanes import Lane


@dataclass(frozen=True, slots=True)
class Result:
    """Hyperparameters and their accuracy, between 0 and 1; `out_of_memory` ones did not fit."""

    hyperparameters: Hyperparameters
    accuracy: float
    out_of_memory: bool = False


@dataclass(frozen=True, slots=True)
class Tried:
    """All that is known of a space: results, what is being tried, and what is allowed.

    `fits` is False for hyperparameters that the accelerator's memory does not take, or whose
    training would repeat an earlier one.
    """

    results: tuple[Result, ...] = ()
    pending: tuple[Hyperparameters, ...] = ()
    fits: Callable[[Hyperparameters], bool] = lambda hyperparameters: True


class Tuner(Protocol):
    """Suggests hyperparameters as a pure function of its arguments; accuracy is to be maximised."""

    def __call__(self, space: Space, tried: Tried, seed: int, lane: Lane = ..., /) -> Hyperparameters:
        """A value for every parameter of the space.

        As long as the space has such a suggestion, it is not one of `tried.pending`, `tried.fits`
        allows it, and its batch is smaller than every batch that ran out of memory. It is in the
        lane if any suggestion of the lane is drawn, so that jobs that ask at the same moment get
        different ones.
        """


def lane_key(hyperparameters: Hyperparameters) -> int:
    """The key of hyperparameters for `Lane.holds`."""
    return zlib.crc32(json.dumps(hyperparameters, sort_keys=True).encode())
