"""The training step of a network on random data, on JAX."""

from collections.abc import Sequence
from typing import Any

import jax
import keras

from replica.measure.profile.networks.batches import mean_square
from replica.trainer.collectives.contract import Collective
from replica.trainer.model.state import KerasState

Values = list[Any]
"""Arrays of some variables."""


class JaxNetworkSteps(KerasState):
    """Steps as pure functions of the variables' values, compiled for one size (`NetworkSteps`)."""

    def __init__(self, model: Any, optimiser: Any, collective: Collective, batch_size: int, xla: bool) -> None:
        super().__init__(model, optimiser, collective)
        images = jax.ShapeDtypeStruct((batch_size, *model.input_shape[1:]), "float32")
        values = jax.tree.map(lambda value: jax.ShapeDtypeStruct(value.shape, value.dtype), self._values())
        # The results take the memory of the variables, as in a training: else a step would need
        # room for both.
        self._program = jax.jit(self._step, donate_argnums=(0, 1, 2)).lower(*values, images).compile()
        self._score = jax.jit(self._loss_of).lower(*values[:2], images).compile()

    def _values(self) -> tuple[Values, Values, Values]:
        return (
            [variable.value for variable in self._model.trainable_variables],
            [variable.value for variable in self._model.non_trainable_variables],
            [variable.value for variable in self._optimiser.variables],
        )

    def program_bytes(self, size: int) -> int:
        """Bytes that the training program takes for what it computes."""
        return int(self._program.memory_analysis().temp_size_in_bytes)

    def _step(self, trained: Values, others: Values, own: Values, images: Any) -> tuple[Any, Values, Values, Values]:
        def scaled(trained: Values) -> Any:
            outputs, after = self._model.stateless_call(trained, others, images, training=True)
            loss = mean_square(outputs)
            # In float16 the optimiser keeps the scale of the loss in a variable: it is to be the
            # traced one.
            with keras.StatelessScope(state_mapping=list(zip(self._optimiser.variables, own, strict=True))):
                return self._optimiser.scale_loss(loss), (loss, after)

        gradients, (loss, after) = jax.grad(scaled, has_aux=True)(trained)
        trained, own = self._optimiser.stateless_apply(own, gradients, trained)
        return loss, trained, after, own

    def _loss_of(self, trained: Values, others: Values, images: Any) -> Any:
        return mean_square(self._model.stateless_call(trained, others, images, training=False)[0])

    def train(self, images: Any) -> Any:
        """Do one update; give the loss before it."""
        loss, *after = self._program(*self._values(), images)
        variables = (
            self._model.trainable_variables,
            self._model.non_trainable_variables,
            self._optimiser.variables,
        )
        for group, values in zip(variables, after, strict=True):
            for variable, value in zip(group, values, strict=True):
                variable.assign(value)
        return loss

    def evaluate(self, images: Any) -> Any:
        """Compute the loss of the model as it stands."""
        trained, others, _ = self._values()
        return self._score(trained, others, images)

    def read(self, results: Sequence[Any]) -> list[float]:
        """Wait for the steps that gave these results."""
        return [float(each) for each in results]
