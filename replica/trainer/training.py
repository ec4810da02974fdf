"""The training of one model on one rank: steps, epochs, evaluation, and the count of images that really ran."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import keras
import tensorflow as tf

from aiperf.errors import TrialFailedError
from aiperf.messages import Phase, TrainRequest
from replica.rounds import out_of_patience
from replica.trainer.data.contract import Batches, DataSource

Step = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True)
class EpochResult:
    """One epoch, in whole images; losses are means per image."""

    epoch: int
    images_trained: int
    images_evaluated: int
    correct: int
    loss: float
    validation_loss: float
    learning_rate: float


class Reporter(Protocol):
    """Who is told how the training goes."""

    def phase(self, phase: Phase) -> None:
        """A phase begins."""

    def progress(self, epoch: int, images_trained: int, images_evaluated: int) -> None:
        """Images of the current epoch that have been processed."""

    def epoch(self, result: EpochResult) -> None:
        """An epoch is complete."""


def linear_decay(initial: float, max_epochs: int, steps_per_epoch: int) -> Any:
    """Learning rate by step: from `initial` linearly to 0 over the maximum of epochs (paper, Table 4)."""
    return keras.optimizers.schedules.PolynomialDecay(
        initial, decay_steps=max_epochs * steps_per_epoch, end_learning_rate=0.0, power=1.0
    )


class Training:
    """Trains `model` as requested. Epoch results carry the number of images that were really processed."""

    def __init__(self, model: Any, source: DataSource, request: TrainRequest, report: Reporter) -> None:
        self._model = model
        self._source = source
        self._request = request
        self._report = report
        steps = math.ceil(source.dataset.train_images / request.batch_size)
        self._schedule = linear_decay(request.learning_rate, request.max_epochs, steps)
        self._optimizer = keras.optimizers.SGD(self._schedule, momentum=request.momentum)
        self._optimizer.build(model.trainable_variables)
        self._train_step = _compiled(self._train, model, request.xla)
        self._evaluate_step = _compiled(self._evaluate, model, request.xla)
        self._reported_s = time.monotonic()
        self.best_weights: list[Any] | None = None
        """Weights of the best epoch in the model's order, where they are asked for."""

    def run(self) -> bool:
        """Train the epochs of the round; True where patience ended it. Raises TrialFailedError on a NaN loss.

        With `save_weights_path`, the weights of the best epoch are kept and `best_weights` gives them.
        """
        accuracies: list[float] = []
        for epoch in range(1, self._request.epochs + 1):
            result = self._epoch(epoch)
            self._report.epoch(result)
            accuracies.append(result.correct / result.images_evaluated)
            if self._request.save_weights_path is not None and accuracies[-1] == max(accuracies):
                self.best_weights = self._model.get_weights()
            if out_of_patience(accuracies, self._request.patience):
                return True
        return False

    def _epoch(self, epoch: int) -> EpochResult:
        request = self._request
        self._report.phase("train")
        learning_rate = float(self._schedule(self._optimizer.iterations))
        trained, loss = 0, tf.constant(0.0)
        for images, step_loss in self._steps(
            self._train_step, self._source.train_batches(request.batch_size, request.seed, epoch)
        ):
            trained, loss = trained + images, loss + step_loss
            self._maybe_report(epoch, trained, 0, loss)
        training_loss = _finite(loss, epoch) / trained
        self._report.phase("evaluate")
        evaluated, totals = 0, tf.constant([0.0, 0.0])
        for images, step_totals in self._steps(
            self._evaluate_step, self._source.validation_batches(request.batch_size)
        ):
            evaluated, totals = evaluated + images, totals + step_totals
            self._maybe_report(epoch, trained, evaluated, totals[0])
        validation_loss, correct = (float(total) for total in totals)
        return EpochResult(
            epoch, trained, evaluated, round(correct), training_loss, validation_loss / evaluated, learning_rate
        )

    @staticmethod
    def _steps(step: Step, batches: Batches) -> Iterator[tuple[int, Any]]:
        for images, labels in batches:
            yield int(images.shape[0]), step(images, labels)

    def _maybe_report(self, epoch: int, trained: int, evaluated: int, pending: Any) -> None:
        now_s = time.monotonic()
        if now_s - self._reported_s < self._request.progress_interval_s:
            return
        _finite(pending, epoch)  # waits for the device: only images that are done are reported
        self._reported_s = time.monotonic()
        self._report.progress(epoch, trained, evaluated)

    def _train(self, images: Any, labels: Any) -> Any:
        smoothing = self._request.label_smoothing
        with tf.GradientTape() as tape:
            losses = keras.losses.categorical_crossentropy(
                labels, self._model(images, training=True), label_smoothing=smoothing
            )
            loss = tf.reduce_mean(losses)
        variables = self._model.trainable_variables
        self._optimizer.apply(tape.gradient(loss, variables), variables)
        return tf.reduce_sum(losses)

    def _evaluate(self, images: Any, labels: Any) -> Any:
        outputs = self._model(images, training=False)
        hits = tf.equal(tf.argmax(outputs, axis=-1), tf.argmax(labels, axis=-1))
        losses = keras.losses.categorical_crossentropy(labels, outputs)
        return tf.stack([tf.reduce_sum(losses), tf.reduce_sum(tf.cast(hits, tf.float32))])


def _compiled(step: Step, model: Any, xla: bool) -> Step:
    """The step as a graph, traced once for any batch size, before the clock of the first epoch runs."""
    images = tf.TensorSpec((None, *model.input_shape[1:]), tf.float32)
    labels = tf.TensorSpec((None, model.output_shape[-1]), tf.float32)
    function: Any = tf.function(step, input_signature=(images, labels), jit_compile=xla or None)
    function.get_concrete_function()
    return function  # type: ignore[no-any-return]


def _finite(loss: Any, epoch: int) -> float:
    value = float(loss)
    if not math.isfinite(value):
        raise TrialFailedError("nan", f"the loss is {value} in epoch {epoch}")
    return value
