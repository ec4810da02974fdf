"""Adam (Kingma and Ba 2015), as `keras.optimizers.Adam` does it."""

import numpy as np

from replica.trainer.servers.optimisers.contract import VALUES, Vector, Vectors

BETA_2, EPSILON = 0.999, 1e-7
"""Keras's values of Adam's other constants."""


class Adam:
    """First and second moments; epsilon is added to the uncorrected root (Kingma and Ba, 2)."""

    slots = ("first", "second")

    def __init__(self, momentum: float) -> None:
        self._beta_1 = np.float32(momentum)

    def apply(self, before: Vectors, after: Vectors, gradient: Vector, rate: float, step: int) -> None:
        """Change the values in place."""
        beta_2, taken = np.float32(BETA_2), step + 1
        corrected = np.sqrt(np.float32(1) - beta_2**taken) / (np.float32(1) - self._beta_1**taken)
        # The gradient's memory serves for the intermediate results: new vectors of millions of
        # values would be mapped and zeroed by the kernel at every update.
        first, second = (after[name] for name in self.slots)
        _average(before["first"], gradient, self._beta_1, first)
        gradient *= gradient
        _average(before["second"], gradient, beta_2, second)
        np.sqrt(second, out=gradient)
        gradient += np.float32(EPSILON)
        np.divide(first, gradient, out=gradient)
        gradient *= np.float32(rate) * np.float32(corrected)
        after[VALUES][:] -= gradient


def _average(before: Vector, new: Vector, share: np.float32, into: Vector) -> None:
    """Write the moving average, of which `share` stays."""
    np.subtract(new, before, out=into)
    into *= np.float32(1) - share
    into += before
