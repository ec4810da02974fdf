"""Made-up learning curves: quality saturates exponentially over the epochs, with noise.

What an architecture gains follows from its hash, and what hyperparameters lose from their distance
to a point that the seed draws, so that a search has something to find and a rehearsal is repeated
exactly.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

from aiperf.config.space import Value
from rehearsal.machine.file import CurveSection

LOSS_AT_FIRST = 5.0


class Curve:
    """The quality of one training after each epoch."""

    def __init__(
        self, settings: CurveSection, architecture: str, hyperparameters: Mapping[str, Value], seed: int
    ) -> None:
        self._settings = settings
        self._seed = seed
        gain = settings.gain * random.Random(f"architecture {architecture}").random()  # noqa: S311  not for secrets
        self._limit = min(0.999, settings.best + gain - _penalty(hyperparameters))

    def accuracy(self, epoch: int) -> float:
        """Top-1 accuracy after an epoch, from 1: a resumed training repeats what was."""
        noise = random.Random(f"{self._seed} {epoch}").gauss(0.0, self._settings.noise)  # noqa: S311
        reached = self._limit * (1 - math.exp(-epoch / self._settings.epochs)) + noise
        return min(0.999, max(0.0, reached))

    def loss(self, epoch: int) -> float:
        """Training loss after an epoch."""
        return 1.0 + LOSS_AT_FIRST * math.exp(-epoch / self._settings.epochs)


def _penalty(hyperparameters: Mapping[str, Value]) -> float:
    """Accuracy that a learning rate loses: 1 % for a factor of e from 0.1."""
    rate = float(hyperparameters.get("learning_rate", 0.1))
    return 0.01 * abs(math.log(max(rate, 1e-9) / 0.1))
