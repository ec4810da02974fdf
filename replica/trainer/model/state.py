"""The state of a training: the variables of a Keras model and its optimiser, on any framework."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from replica.trainer.collectives.contract import Collective


class KerasState:
    """The part of `CompiledSteps` that reads and sets variables."""

    def __init__(self, model: Any, optimiser: Any, collective: Collective) -> None:
        self._model = model
        self._optimiser = optimiser
        self._collective = collective

    def learning_rate(self) -> float:
        """The learning rate of the next training step."""
        return float(self._optimiser.learning_rate)

    def weights(self) -> list[NDArray[Any]]:
        """Copies of the model's weights in Keras's order."""
        return [copied(variable) for variable in self._model.weights]

    @property
    def _variables(self) -> list[Any]:
        return [*self._model.variables, *self._optimiser.variables]

    def state(self) -> list[NDArray[Any]]:
        """Copies of all variables of model and optimiser."""
        return [copied(variable) for variable in self._variables]

    def restore(self, state: Sequence[NDArray[Any]]) -> None:
        """Set all variables. Raises ValueError if the shapes are those of another model."""
        variables = self._variables
        if [tuple(variable.shape) for variable in variables] != [value.shape for value in state]:
            raise ValueError("it is of another architecture")
        assign(variables, state)

    def share(self) -> None:
        """Give every rank the weights and the optimiser's state of rank 0."""
        self._collective.broadcast_variables([*self._model.weights, *self._optimiser.variables])

    def average_statistics(self) -> None:
        """Give every rank the mean of the weights that gradients do not train."""
        self._collective.average_variables(self._model.non_trainable_weights)


def copied(variable: Any) -> NDArray[Any]:
    """The values of a variable or tensor, of their own."""
    # Frameworks on the CPU may give a view of memory that the next step overwrites.
    return np.array(keras.ops.convert_to_numpy(variable), copy=True)


def assign(variables: Sequence[Any], values: Sequence[Any]) -> None:
    """Set each variable to a value of its shape."""
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
