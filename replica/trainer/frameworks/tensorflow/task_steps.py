"""The steps of a scientific task as graphs."""

from typing import Any

import tensorflow as tf

from aiperf.wire.messages import WorkloadRequest
from replica.trainer.collectives.contract import Collective
from replica.trainer.frameworks.tensorflow.steps import TensorFlowSteps, compiled
from replica.trainer.model.state import KerasState
from replica.trainer.tasks.contract import Task, trained_variables
from replica.trainer.tasks.rows import KeptRows
from replica.trainer.updates import update_for


class TensorFlowTaskSteps(TensorFlowSteps):
    """Steps as `tf.function`s (`TaskSteps`)."""

    def __init__(self, task: Task, optimiser: Any, collective: Collective, request: WorkloadRequest) -> None:
        KerasState.__init__(self, task.network, optimiser, collective, task.correct)
        self._task = task
        self._trained = trained_variables(task)
        self._kept = KeptRows(task.columns)
        self.take_rows = self._kept.take
        self._update = update_for(optimiser, collective, request)
        shapes = (task.input_shape, task.target_shape)
        # Only if asked for: XLA does not know every operation on regions of images.
        xla = request.compile == "on"
        self._compiler = "XLA" if xla else "no"
        self._gradients = self._own_gradients
        if self._update.traceable:
            self.train = compiled(self._train, shapes, xla and self._update.compilable)
        else:
            self._gradients = compiled(self._own_gradients, shapes, xla)
            self.train = self._train
        self._rows_of = compiled(task.rows, shapes, xla)
        self.evaluate = self._evaluate_rows

    def _own_gradients(self, inputs: Any, targets: Any) -> tuple[Any, list[Any]]:
        """Compute this rank's sums, and the gradients of each part's mean loss."""
        parts = self._task.parts
        # A tape can be asked once unless it is persistent, which keeps memory for longer.
        with tf.GradientTape(persistent=len(parts) > 1) as tape:
            losses = self._task.losses(inputs, targets)
            means = [self._optimiser.scale_loss(tf.reduce_mean(loss)) for loss in losses]
        gradients: list[Any] = []
        for mean, part in zip(means, parts, strict=True):
            gradients += tape.gradient(mean, part.variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        count = tf.cast(tf.shape(inputs)[0], tf.float32)
        return tf.stack([sum(tf.reduce_sum(loss) for loss in losses), count]), gradients

    def _compute_alone(self, images: Any, labels: Any) -> None:
        """Compute what this rank does without the others."""
        self._gradients(images, labels)
        self._rows_of(images, labels)

    def _evaluate_rows(self, inputs: Any, targets: Any) -> Any:
        if len(inputs):
            self._kept.keep(self._rows_of(inputs, targets).numpy())
        own = tf.constant([0.0, float(len(inputs))])
        return own if self._collective.size == 1 else self._collective.sum_tensors([own], "examples")[0]
