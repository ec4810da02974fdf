"""The training step of a network on random data, on TensorFlow."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from replica.measure.profile.networks.batches import mean_square
from replica.trainer.collectives.contract import Collective
from replica.trainer.model.state import KerasState


class TensorFlowNetworkSteps(KerasState):
    """Steps as graphs for whole batches (`NetworkSteps`)."""

    def __init__(self, model: Any, optimiser: Any, collective: Collective, batch_size: int, xla: bool) -> None:
        super().__init__(model, optimiser, collective)
        given = (tf.TensorSpec((batch_size, *model.input_shape[1:]), tf.float32),)
        self.train = tf.function(self._train, input_signature=given, jit_compile=xla or None)
        self.evaluate = tf.function(self._evaluate, input_signature=given, jit_compile=xla or None)

    def _train(self, images: Any) -> Any:
        variables = self._model.trainable_variables
        with tf.GradientTape() as tape:
            loss = mean_square(self._model(images, training=True))
            scaled = self._optimiser.scale_loss(loss)
        self._optimiser.apply(tape.gradient(scaled, variables), variables)
        return loss

    def _evaluate(self, images: Any) -> Any:
        return mean_square(self._model(images, training=False))

    def read(self, results: Sequence[Any]) -> list[float]:
        """Wait for the steps that gave these results."""
        return [float(each.numpy()) for each in results]
