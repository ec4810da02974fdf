"""The training step and the evaluation step of one rank, as graphs; sums are over all ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from aiperf.messages import TrainRequest
from replica.trainer.collectives import Collective

Step = Callable[[Any, Any], Any]


class Steps:
    """Compiled steps on batches of any size, also none at all: (N, H, W, C) float32 and (N, classes) float32.

    Every rank calls the same steps in the same order. A rank that has run out of images passes empty batches,
    so that all ranks take part in every all-reduce.
    """

    def __init__(self, model: Any, optimizer: Any, collective: Collective, request: TrainRequest) -> None:
        self._model = model
        self._optimizer = optimizer
        self._collective = collective
        self._smoothing = request.label_smoothing
        compiled = _compiled(self._gradients, model, request.xla) if collective.size > 1 else self._gradients
        self._compute = compiled
        self.train = _compiled(self._train_alone if collective.size == 1 else self._train_together, model,
                               request.xla and collective.size == 1)  # fmt: skip
        """Loss summed over images, and images, of all ranks: (2,) float32."""
        self._score = _compiled(self._evaluate, model, request.xla)
        self.evaluate = self._score if collective.size == 1 else _compiled(self._evaluate_together, model, False)
        """Loss summed over images, hits, and images, of all ranks: (3,) float32."""

    def _gradients(self, images: Any, labels: Any) -> tuple[Any, list[Any]]:
        with tf.GradientTape() as tape:
            outputs = self._model(images, training=True)
            losses = keras.losses.categorical_crossentropy(labels, outputs, label_smoothing=self._smoothing)
            loss = self._optimizer.scale_loss(tf.reduce_mean(losses))
        return tf.reduce_sum(losses), tape.gradient(loss, self._model.trainable_variables)

    def _train_alone(self, images: Any, labels: Any) -> Any:
        loss, gradients = self._compute(images, labels)
        self._optimizer.apply(gradients, self._model.trainable_variables)
        return tf.stack([loss, tf.cast(tf.shape(images)[0], tf.float32)])

    def _train_together(self, images: Any, labels: Any) -> Any:
        """Each rank's mean gradient weighs as many images as it saw: the same as one rank with all images.

        Batch normalisation sees the images of its own rank only, as always in synchronous data parallelism.
        """
        variables = self._model.trainable_variables
        count = tf.cast(tf.shape(images)[0], tf.float32)
        loss, gradients = tf.cond(
            count > 0,
            lambda: self._compute(images, labels),
            lambda: (tf.constant(0.0), [tf.zeros(variable.shape) for variable in variables]),
        )
        weighted = [gradient * count for gradient in gradients]
        *summed, totals = self._collective.sum_tensors([*weighted, tf.stack([loss, count])], "gradients")
        self._optimizer.apply([gradient / totals[1] for gradient in summed], variables)
        return totals

    def _evaluate(self, images: Any, labels: Any) -> Any:
        outputs = self._model(images, training=False)
        hits = tf.equal(tf.argmax(outputs, axis=-1), tf.argmax(labels, axis=-1))
        losses = keras.losses.categorical_crossentropy(labels, outputs)
        count = tf.cast(tf.shape(images)[0], tf.float32)
        return tf.stack([tf.reduce_sum(losses), tf.reduce_sum(tf.cast(hits, tf.float32)), count])

    def _evaluate_together(self, images: Any, labels: Any) -> Any:
        own = tf.cond(tf.shape(images)[0] > 0, lambda: self._score(images, labels), lambda: tf.zeros(3))
        return self._collective.sum_tensors([own], "hits")[0]


def _compiled(step: Callable[..., Any], model: Any, xla: bool) -> Any:
    """The step as a graph, traced once for any batch size."""
    images = tf.TensorSpec((None, *model.input_shape[1:]), tf.float32)
    labels = tf.TensorSpec((None, model.output_shape[-1]), tf.float32)
    return tf.function(step, input_signature=(images, labels), jit_compile=xla or None)
