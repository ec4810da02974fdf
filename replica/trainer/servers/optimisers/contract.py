"""The contract of a parameter server's optimiser: Keras's arithmetic on one flat vector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
"""Values, gradients or moments of all parameters of a server, in turn: (N,) float32."""


class ServerOptimiser(Protocol):
    """An optimiser with its state."""

    @property
    def slots(self) -> dict[str, Vector]:
        """The optimiser's vectors of state by name, which may be overwritten to restore them."""

    def apply(self, values: Vector, gradient: Vector, rate: float, step: int) -> None:
        """Change the values in place; `step` is the number of updates before this one.

        The gradient is changed, too.
        """


MakeOptimiser = Callable[[int, float], ServerOptimiser]
