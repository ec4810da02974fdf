"""The contract of a parameter server's optimiser: Keras's arithmetic on one flat vector."""

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
"""From the momentum (for Adam: beta 1)."""
