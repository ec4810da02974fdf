"""Learning rates by the share of a training: the same on every framework and with any ranks.

A rate depends on the images that were trained so far, not on this trainer's steps: a training that
other ranks resume, with steps of another size, has the rates of one that was never interrupted.
"""

import math
from collections.abc import Callable

from aiperf.rules.rounds import learning_rate
from aiperf.wire.messages import TrainRequest
from workloads.science.contract import Schedule

Rate = Callable[[float], float]
"""Function that gives the learning rate after a number of epochs and a fraction of the next."""


def linear_rate(request: TrainRequest) -> Rate:
    """The rate of AutoML's trainings, by the rules."""
    return lambda epochs: learning_rate(request.learning_rate, epochs, request.max_epochs)


class ScheduledRate:
    """The rate of a scientific workload.

    It grows with the ranks, which make the batch larger: in proportion for SGD (Goyal et al. 2017),
    by the square root for Adam (Malladi et al. 2022).
    """

    def __init__(self, schedule: Schedule, request: TrainRequest, ranks: int) -> None:
        self._schedule = schedule
        self._request = request
        self._optimiser = schedule.optimiser if request.hybrid is None else request.hybrid.optimiser
        self.ranks = ranks
        """The ranks that the training began with, whatever others resume it."""

    def __call__(self, epochs: float) -> float:
        """The rate after a number of epochs and a fraction of the next."""
        growth = self.ranks if self._optimiser == "sgd" else math.sqrt(self.ranks)
        return self._request.learning_rate * growth * self._schedule.factor(epochs / self._request.max_epochs)
