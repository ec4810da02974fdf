"""The training step and the evaluation step of one rank, as graphs.

Results are over all ranks.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from aiperf.wire.messages import ArchitectureRequest
from replica.trainer.collectives.contract import Collective
from replica.trainer.framework import BlankBatch
from replica.trainer.model import objectives
from replica.trainer.model.builder import normalise_by
from replica.trainer.model.correct import CorrectImages
from replica.trainer.model.state import KerasState
from replica.trainer.updates import update_for
from workloads.contract import Workload

# Batch normalisation in TensorFlow's fused operation, on the variables of Keras's layers.
#
# Keras computes the moments of a batch and its normalisation in operations of their own, each a
# pass over the images.

IMAGES = 4
"""Number of axes of a batch of images (N, H, W, C)."""


def fuse_normalisation(model: Any) -> None:
    """Let the model's layers normalise batches of images in one operation when they train."""
    normalise_by(model, _fused, IMAGES)


def _fused(layer: Any, inputs: Any) -> tuple[Any, Any, Any]:
    # In training the moments must be empty: the operation finds those of the batch.
    outputs, mean, unbiased, *_ = tf.raw_ops.FusedBatchNormV3(
        x=inputs,
        scale=layer.gamma.value,
        offset=layer.beta.value,
        mean=[],
        variance=[],
        epsilon=layer.epsilon,
        is_training=True,
    )
    # The operation divides the variance by N - 1; Keras's moving statistics are divided by N.
    count = tf.cast(tf.reduce_prod(tf.shape(inputs)[:-1]), tf.float32)
    return outputs, mean, unbiased * ((count - 1) / count)


class TensorFlowSteps(KerasState):
    """Steps as `tf.function`s, traced once for batches of any size (`CompiledSteps`)."""

    def __init__(
        self, model: Any, optimiser: Any, workload: Workload, collective: Collective, request: ArchitectureRequest
    ) -> None:
        super().__init__(model, optimiser, collective, CorrectImages())
        fuse_normalisation(model)
        self._trained = list(model.trainable_variables)
        self._loss = objectives.find(workload.training_loss(request))
        self._scores = [objectives.find(each) for each in (workload.validation_loss(request), *workload.metrics)]
        self._update = update_for(optimiser, collective, request)
        # XLA compiles the whole step if the update can be compiled. It cannot compile Horovod's
        # all-reduce: then the gradients are compiled, and the step around them is an ordinary
        # graph.
        whole, shapes = self._update.compilable, (model.input_shape[1:], model.output_shape[-1:])
        xla = request.compile == "on" or (request.compile == "auto" and bool(tf.config.list_physical_devices("GPU")))
        self._compiler = "XLA" if xla else "no"
        self._gradients = self._own_gradients if whole else compiled(self._own_gradients, shapes, xla)
        self.train: Any = compiled(self._train, shapes, xla and whole) if self._update.traceable else self._train
        self._score = compiled(self._evaluate, shapes, xla)
        self.evaluate = self._score if collective.size == 1 else compiled(self._evaluate_together, shapes, False)

    def compiled(self) -> str:
        """Say whether XLA compiles the steps."""
        return self._compiler

    def _own_gradients(self, images: Any, labels: Any) -> tuple[Any, list[Any]]:
        """Compute this rank's sums, and the gradients of its mean loss."""
        with tf.GradientTape() as tape:
            outputs = self._model(images, training=True)
            losses = self._loss(labels, outputs)
            loss = self._optimiser.scale_loss(tf.reduce_mean(losses))
        if self._correct is not None:
            self._correct.add(labels, outputs)
        sums = tf.stack([tf.reduce_sum(losses), tf.cast(tf.shape(images)[0], tf.float32)])
        return sums, tape.gradient(loss, self._trained)

    def _train(self, images: Any, labels: Any) -> Any:
        variables = self._trained
        if self._collective.size == 1:
            sums, gradients = self._gradients(images, labels)
        else:
            # The mean over no images is not a number: without images there are no gradients.
            sums, gradients = tf.cond(
                tf.shape(images)[0] > 0,
                lambda: self._gradients(images, labels),
                lambda: (tf.zeros(2), [tf.zeros(variable.shape) for variable in variables]),
            )
        # Read before the update, which may change it.
        scale = self._optimiser.scale_loss(tf.ones(()))
        totals, applied = self._update.apply(gradients, variables, sums)
        return tf.concat([totals, [tf.linalg.global_norm(applied) / scale]], axis=0)

    def _evaluate(self, images: Any, labels: Any) -> Any:
        outputs = self._model(images, training=False)
        count = tf.cast(tf.shape(images)[0], tf.float32)
        return tf.stack([*(tf.reduce_sum(score(labels, outputs)) for score in self._scores), count])

    def _evaluate_together(self, images: Any, labels: Any) -> Any:
        nothing = tf.zeros(len(self._scores) + 1)
        own = tf.cond(tf.shape(images)[0] > 0, lambda: self._score(images, labels), lambda: nothing)
        return self._collective.sum_tensors([own], "scores")[0]

    def prepare(self, blank: BlankBatch, sizes: Sequence[int]) -> None:
        """Trace and optimise the graphs by a step on a blank image, and restore the state.

        Several ranks on GPUs exchange nothing: NCCL would hold memory next to another training. The
        graph around their exchange is traced alone.
        """
        before = self.state()
        if self._collective.size > 1 and tf.config.list_physical_devices("GPU"):
            self._compute_alone(*blank(1))
            if self._update.traceable:
                self.train.get_concrete_function()
        else:
            self.train(*blank(1))
            self.evaluate(*blank(1))
        self.restore(before)

    def _compute_alone(self, images: Any, labels: Any) -> None:
        """Compute what this rank does without the others."""
        self._gradients(images, labels)
        self._score(images, labels)

    def read(self, results: Sequence[Any]) -> NDArray[np.float32]:
        """Wait for the steps that gave these results; give a row for each of them."""
        return np.stack([each.numpy() for each in results])


def compiled(step: Callable[..., Any], shapes: Iterable[Sequence[int]], xla: bool) -> Any:
    """Make a step a graph, traced once for any batch size; it takes NumPy arrays and tensors.

    `shapes` are those of one example of each argument. Without the signature TensorFlow would
    trace again for each new size of a batch.
    """
    signature = tuple(tf.TensorSpec((None, *shape), tf.float32) for shape in shapes)
    return tf.function(step, input_signature=signature, autograph=False, jit_compile=xla or None)
