"""Steps on random data, for networks with outputs of any shapes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from aiperf.network.layers import Shape
from replica.trainer.collectives import Collective
from replica.trainer.model.state import KerasState


@dataclass(frozen=True, slots=True)
class RandomBatches:
    """The same random batch for every step: (N, ...) float32, from a fixed seed."""

    images: Any

    @classmethod
    def of(cls, shape: Shape, batch_size: int, seed: int = 1) -> RandomBatches:
        """Standard normal values of the input's shape."""
        return cls(tf.constant(np.random.default_rng(seed).standard_normal((batch_size, *shape), np.float32)))

    def __iter__(self) -> Iterator[tuple[Any]]:
        while True:
            yield (self.images,)


class NetworkSteps(KerasState):
    """A training step of a network with outputs of any shapes.

    The loss is the mean square of all outputs: what a step costs does not depend on its values, and
    random inputs have no labels.
    """

    def __init__(self, model: Any, optimiser: Any, collective: Collective, batch_size: int, xla: bool) -> None:
        super().__init__(model, optimiser, collective)
        given = (tf.TensorSpec((batch_size, *model.input_shape[1:]), tf.float32),)
        self.train = tf.function(self._train, input_signature=given, jit_compile=xla or None)
        self.evaluate = tf.function(self._evaluate, input_signature=given, jit_compile=xla or None)

    def _loss(self, images: Any, training: bool) -> Any:
        outputs = self._model(images, training=training)
        return sum(tf.reduce_mean(tf.square(tf.cast(each, tf.float32))) for each in tf.nest.flatten(outputs))

    def _train(self, images: Any) -> Any:
        variables = self._model.trainable_variables
        with tf.GradientTape() as tape:
            loss = self._loss(images, True)
            scaled = self._optimiser.scale_loss(loss)
        self._optimiser.apply(tape.gradient(scaled, variables), variables)
        return loss

    def _evaluate(self, images: Any) -> Any:
        return self._loss(images, False)

    def read(self, results: Sequence[Any]) -> list[float]:
        """Wait for the steps that gave these results."""
        return [float(each.numpy()) for each in results]
