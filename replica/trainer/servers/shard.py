"""The parameters of one server: their values, their moving average, their optimiser."""

import numpy as np
from msgspec import Struct

from replica.trainer.servers.optimisers import SERVER_OPTIMISERS, VALUES, Vector, Vectors

AVERAGING = 0.97
"""Share of the moving average that an update leaves; validation uses the average."""

AVERAGE = "average"


class Recipe(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The recipe by which a server applies gradients."""

    optimiser: str
    momentum: float
    weight_decay: float = 0.0
    """Decoupled weight decay, as Keras has it: values lose their share `rate * weight_decay`."""
    staleness_aware: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Names of a server's vectors: values, average, and the optimiser's."""
        return VALUES, AVERAGE, *SERVER_OPTIMISERS[self.optimiser](self.momentum).slots

    def begun_with(self, values: Vector) -> dict[str, Vector]:
        """The vectors of a new training."""
        zeros = np.zeros_like(values)
        # The vectors may share their memory: they are only copied into the message that sets a
        # server up.
        return {**dict.fromkeys(self.names, zeros), VALUES: values, AVERAGE: values}


class Shard:
    """The vectors of one server, to which gradients are applied in the order of their arrival.

    There are two states: an update reads one and writes the other.
    """

    def __init__(self, recipe: Recipe, states: tuple[Vectors, Vectors], version: int, updates: int = 0) -> None:
        """`updates`: number of them in `version` that were applied to these states."""
        self._recipe = recipe
        self._optimiser = SERVER_OPTIMISERS[recipe.optimiser](recipe.momentum)
        self._states = states
        self._updates = updates
        self.version = version
        """Number of updates that were applied, with those of earlier trainings."""

    @property
    def state(self) -> Vectors:
        """The vectors by name after the last update."""
        return self._states[self._updates % 2]

    @property
    def values(self) -> Vector:
        """The values after the last update."""
        return self.state[VALUES]

    def apply(self, gradient: Vector, rate: float, version: int) -> int:
        """Apply a gradient that was computed on a version of the values; give its staleness.

        The staleness is the number of updates since that version. The gradient is changed. An
        update at a rate of 0 counts, and leaves all vectors as they are, momentum among them.
        """
        staleness = self.version - version
        before, after = self.state, self._states[(self._updates + 1) % 2]
        if rate:
            self._change(before, after, gradient, rate, staleness)
        else:
            for name, vector in before.items():
                # The state that is written is that before the last update: it must be brought up
                # to date even if nothing changes.
                after[name][:] = vector
        self._updates += 1
        self.version += 1
        return staleness

    def _change(self, before: Vectors, after: Vectors, gradient: Vector, rate: float, staleness: int) -> None:
        """Write the vectors after an update."""
        if self._recipe.staleness_aware:
            rate /= 1 + staleness  # Zhang et al. 2016
        kept = np.float32(1) - np.float32(self._recipe.weight_decay) * np.float32(rate)
        np.multiply(before[VALUES], kept, out=after[VALUES])
        self._optimiser.apply(before, after, gradient, rate, self.version)
        # Asynchronous values jump about with each group's update: their average is steadier to
        # validate.
        np.multiply(before[AVERAGE], np.float32(AVERAGING), out=after[AVERAGE])
        # The optimiser is done with the gradient: its memory serves as the temporary vector.
        np.multiply(after[VALUES], np.float32(1 - AVERAGING), out=gradient)
        after[AVERAGE][:] += gradient
