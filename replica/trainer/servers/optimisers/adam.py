"""Adam (Kingma and Ba 2015), as `keras.optimizers.Adam` does it."""

from __future__ import annotations

import numpy as np

from replica.trainer.servers.optimisers.contract import Vector

BETA_2, EPSILON = 0.999, 1e-7
"""Keras's values of Adam's other constants."""


class Adam:
    """First and second moments; epsilon is added to the uncorrected root (Kingma and Ba, 2)."""

    def __init__(self, size: int, momentum: float) -> None:
        self._beta_1 = np.float32(momentum)
        self._first = np.zeros(size, np.float32)
        self._second = np.zeros(size, np.float32)

    @property
    def slots(self) -> dict[str, Vector]:
        """The vectors of both moments."""
        return {"first": self._first, "second": self._second}

    def apply(self, values: Vector, gradient: Vector, rate: float, step: int) -> None:
        """Change the values in place."""
        beta_2, taken = np.float32(BETA_2), step + 1
        corrected = np.sqrt(np.float32(1) - beta_2**taken) / (np.float32(1) - self._beta_1**taken)
        # The gradient's memory serves for the intermediate results: new vectors of millions of
        # values would be mapped and zeroed by the kernel at every update.
        self._first += (gradient - self._first) * (np.float32(1) - self._beta_1)
        gradient *= gradient
        gradient -= self._second
        gradient *= np.float32(1) - beta_2
        self._second += gradient
        np.sqrt(self._second, out=gradient)
        gradient += np.float32(EPSILON)
        np.divide(self._first, gradient, out=gradient)
        gradient *= np.float32(rate) * np.float32(corrected)
        values -= gradient
