"""The state of a training: the variables of a Keras model and its optimiser, on any framework."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from replica.trainer.collectives.contract import Collective
from replica.trainer.model.correct import CorrectImages

SEED_STATE = "seed_generator_state"
"""Name of the variable of a Keras generator, such as a dropout's."""

LOSS_SCALING = 4
"""Number of variables of Keras's loss scaling: scalars in front of those of its optimiser."""


class KerasState:
    """The part of `CompiledSteps` that reads and sets variables."""

    def __init__(
        self, model: Any, optimiser: Any, collective: Collective, correct: CorrectImages | None = None
    ) -> None:
        self._model = model
        self._optimiser = optimiser
        self._collective = collective
        self._correct = correct
        """The counter that the training steps add to; None if they classify nothing."""

    def set_learning_rate(self, rate: float) -> None:
        """Set the learning rate of the training steps that follow."""
        self._optimiser.learning_rate.assign(rate)

    def _settle(self) -> None:
        """Give the variables their values, if the steps have them elsewhere."""

    def weights(self) -> list[NDArray[Any]]:
        """Copies of the model's weights in Keras's order."""
        self._settle()
        return [copied(variable) for variable in self._model.weights]

    @property
    def _variables(self) -> list[Any]:
        return [*self._model.variables, *self._scaling, *self._slots]

    @property
    def _scaling(self) -> list[Any]:
        """The variables of the loss scaling of float16; none without it."""
        slots = len(self._slots) + 1  # and the learning rate
        return list(self._optimiser.variables[:-slots])

    @property
    def _slots(self) -> list[Any]:
        """The optimiser's own variables, but for the learning rate, which the next step sets."""
        optimiser = getattr(self._optimiser, "inner_optimizer", self._optimiser)
        return [variable for variable in optimiser.variables if variable is not optimiser.learning_rate]

    def state(self) -> list[NDArray[Any]]:
        """Copies of all variables of model and optimiser, without the learning rate."""
        self._settle()
        return [copied(variable) for variable in self._variables]

    def restore(self, state: Sequence[NDArray[Any]]) -> None:
        """Set all variables, but for a loss scaling that only one of the two precisions has.

        Training images are counted from 0 again. Raises ValueError if the shapes are those of
        another model.
        """
        self._settle()
        model, slots = list(self._model.variables), self._slots
        found = [value.shape for value in state]
        # The same precision; a checkpoint of another one without loss scaling; one with it, to
        # skip.
        for scaling, skipped in ((self._scaling, 0), ([], 0), ([], LOSS_SCALING)):
            variables = [*model, *scaling, *slots]
            kept = [*state[: len(model)], *state[len(model) + skipped :]]
            scalars = found[len(model) : len(model) + skipped] == [()] * skipped
            if scalars and [tuple(variable.shape) for variable in variables] == [value.shape for value in kept]:
                assign(variables, kept)
                if self._correct is not None:
                    self._correct.clear()
                return
        raise ValueError("it is of another architecture")

    def share(self) -> None:
        """Give every rank the weights, optimiser's state and number of draws of rank 0."""
        self._settle()
        # Rank 0 may wait for storage, longer than libraries let an exchange of tensors wait for it.
        self._collective.broadcast_vector(np.zeros(1, np.float32))
        self._collective.broadcast_variables([*self._model.weights, *self._optimiser.variables])
        self._share_draws()

    def _share_draws(self) -> None:
        """Let every rank's generators go on after as many draws as rank 0's, each with its seed.

        Rank 0 may have restored a state: other ranks would draw the masks of the first epochs
        again.
        """
        generators = [variable for variable in self._model.variables if variable.name == SEED_STATE]
        if self._collective.size == 1 or not generators:
            return
        states = [copied(variable) for variable in generators]  # (2,) each: the seed, and the draws since
        draws = np.array([state[1] for state in states], np.int32)
        draws = self._collective.broadcast_vector(draws.view(np.float32)).view(np.int32)
        assign(
            generators, [np.array([state[0], count], state.dtype) for state, count in zip(states, draws, strict=True)]
        )

    def take_correct(self) -> int | None:
        """Take the number of training images, of all ranks, that were classified rightly."""
        self._settle()
        return None if self._correct is None else self._correct.take(self._collective)

    def average_statistics(self) -> None:
        """Give every rank the mean of the weights that gradients do not train."""
        self._settle()
        self._collective.average_variables(self._model.non_trainable_weights)


def copied(variable: Any) -> NDArray[Any]:
    """Copy the values of a variable or tensor."""
    # Frameworks on the CPU may give a view of memory that the next step overwrites.
    return np.array(keras.ops.convert_to_numpy(variable), copy=True)


def assign(variables: Sequence[Any], values: Sequence[Any]) -> None:
    """Set each variable to a value of its shape."""
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
