"""Gradient descent with momentum, as `keras.optimizers.SGD` does it."""

import numpy as np

from replica.trainer.servers.optimisers.contract import VALUES, Vector, Vectors

_VELOCITY = "velocity"


class Sgd:
    """Momentum: m <- momentum m - rate g; w <- w + m."""

    slots = (_VELOCITY,)

    def __init__(self, momentum: float) -> None:
        self._momentum = np.float32(momentum)

    def apply(self, before: Vectors, after: Vectors, gradient: Vector, rate: float, step: int) -> None:
        """Change the values in place."""
        gradient *= np.float32(rate)
        velocity = after[_VELOCITY]
        np.multiply(before[_VELOCITY], self._momentum, out=velocity)
        velocity -= gradient
        after[VALUES][:] += velocity
