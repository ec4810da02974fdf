"""Optimisers of parameter servers by name: Keras's arithmetic on one flat vector."""

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
"""Values, gradients or moments of all parameters of a server, in turn: (N,) float32."""

Vectors = Mapping[str, Vector]
"""A server's vectors by name."""

VALUES = "values"
"""Name of the values; an optimiser's own vectors have other names."""


class ServerOptimiser(Protocol):
    """An optimiser without a state of its own: its vectors are kept next to the values."""

    @property
    def slots(self) -> tuple[str, ...]:
        """Names of the optimiser's vectors, which begin with zeros."""

    def apply(self, before: Vectors, after: Vectors, gradient: Vector, rate: float, step: int) -> None:
        """Change the values `after` in place, and write all slots of `after` from those `before`.

        `step` is the number of updates before this one. The gradient is changed, too.
        """


MakeOptimiser = Callable[[float], ServerOptimiser]
"""A maker of an optimiser from the momentum (for Adam: beta 1)."""

_VELOCITY = "velocity"


class Sgd:
    """Momentum, as `keras.optimizers.SGD` has it: m <- momentum m - rate g; w <- w + m."""

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


BETA_2, EPSILON = 0.999, 1e-7
"""Keras's values of Adam's other constants."""


class Adam:
    """First and second moments, as `keras.optimizers.Adam` has them (Kingma and Ba 2015).

    Epsilon is added to the uncorrected root (section 2 there).
    """

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


SERVER_OPTIMISERS: Mapping[str, MakeOptimiser] = {"sgd": Sgd, "adam": Adam}
"""Makers of optimisers by name."""
