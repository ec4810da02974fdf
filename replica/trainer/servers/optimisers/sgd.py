"""Gradient descent with momentum, as `keras.optimizers.SGD` does it."""

from __future__ import annotations

import numpy as np

from replica.trainer.servers.optimisers.contract import Vector


class Sgd:
    """Momentum: m <- momentum m - rate g; w <- w + m."""

    def __init__(self, size: int, momentum: float) -> None:
        self._momentum = np.float32(momentum)
        self._velocity = np.zeros(size, np.float32)

    @property
    def slots(self) -> dict[str, Vector]:
        """The velocity."""
        return {"velocity": self._velocity}

    def apply(self, values: Vector, gradient: Vector, rate: float, step: int) -> None:
        """Change the values in place."""
        gradient *= np.float32(rate)
        self._velocity *= self._momentum
        self._velocity -= gradient
        values += self._velocity
