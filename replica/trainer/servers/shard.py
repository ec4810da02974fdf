"""The parameters of one server: their values, their moving average, their optimiser."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from pydantic import BaseModel, ConfigDict

from replica.trainer.servers.optimisers import SERVER_OPTIMISERS
from replica.trainer.servers.optimisers.contract import Vector

AVERAGING = 0.97
"""Share of the moving average that an update leaves; validation uses the average."""

VALUES, AVERAGE = "values", "average"


class Recipe(BaseModel):
    """The recipe by which a server applies gradients."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    optimiser: str
    momentum: float
    weight_decay: float = 0.0
    """Decoupled weight decay, as Keras has it: values lose their share `rate * weight_decay`."""
    staleness_aware: bool = False


class Shard:
    """The values of one server, to which gradients are applied in the order of their arrival."""

    def __init__(self, recipe: Recipe, values: Vector) -> None:
        self._recipe = recipe
        self._optimiser = SERVER_OPTIMISERS.load(recipe.optimiser)(len(values), recipe.momentum)
        self.values = values.copy()
        self.average = values.copy()
        self.version = 0
        """Number of updates that were applied."""
        self.images = 0
        """Number of images of these updates."""

    def apply(self, gradient: Vector, rate: float, version: int, images: int) -> int:
        """Apply a gradient that was computed on a version of the values; give its staleness.

        The staleness is the number of updates since that version. The gradient is changed.
        """
        staleness = self.version - version
        if self._recipe.staleness_aware:
            rate /= 1 + staleness  # Zhang et al. 2016
        if self._recipe.weight_decay:
            self.values -= self.values * np.float32(self._recipe.weight_decay) * np.float32(rate)
        self._optimiser.apply(self.values, gradient, rate, self.version)
        self.average *= np.float32(AVERAGING)
        # Asynchronous values jump about with each group's update: their average is steadier to
        # validate.
        self.average += np.float32(1 - AVERAGING) * self.values
        self.version += 1
        self.images += images
        return staleness

    def state(self) -> dict[str, Vector]:
        """The vectors by name: values, average, and the optimiser's."""
        return {VALUES: self.values, AVERAGE: self.average, **self._optimiser.slots}

    def restore(self, state: Mapping[str, Vector], version: int) -> None:
        """Set all vectors. Raises ValueError if they are of another model or optimiser."""
        own = self.state()
        if {name: vector.shape for name, vector in own.items()} != {name: vec.shape for name, vec in state.items()}:
            raise ValueError("it is of other servers")
        for name, vector in own.items():
            vector[:] = state[name]
        self.version = version
