"""The training of one model: steps, epochs, evaluation, checkpoints, and the count of images that really ran."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from aiperf.errors import TrialFailedError
from aiperf.facts import EpochFacts, ProgressFacts
from aiperf.messages import Begin, TrainRequest
from aiperf.rules.rounds import out_of_patience
from replica.trainer.channel import Reporter
from replica.trainer.checkpoints import Checkpoint, Checkpoints
from replica.trainer.collectives import Collective
from replica.trainer.data.contract import Batches, DataSource, Shard
from replica.trainer.data.epochs import Epochs
from replica.trainer.tensorflow.steps import Step, Steps


def linear_decay(initial: float, max_epochs: int, steps_per_epoch: int) -> Any:
    """Learning rate by step: from `initial` linearly to 0 over the maximum of epochs (paper, Table 4)."""
    return keras.optimizers.schedules.PolynomialDecay(
        initial, decay_steps=max_epochs * steps_per_epoch, end_learning_rate=0.0, power=1.0
    )


class Training:
    """Trains `model` as requested, together with the other ranks.

    Epoch results carry the number of images that were really processed. Built and warmed up first
    (`warm_up`), begun when the accelerators are free (`run`).
    """

    def __init__(self, model: Any, source: DataSource, collective: Collective, request: TrainRequest) -> None:
        self._model = model
        self._collective = collective
        self._request = request
        images = source.dataset
        global_batch = request.batch_size * collective.size
        self._train_steps = math.ceil(images.train_images / global_batch)
        self._evaluate_steps = math.ceil(images.validation_images / global_batch)
        self._schedule = linear_decay(request.learning_rate, request.max_epochs, self._train_steps)
        optimizer = keras.optimizers.SGD(self._schedule, momentum=request.momentum)
        scaled = request.precision == "mixed_float16"
        self._optimizer = keras.optimizers.LossScaleOptimizer(optimizer) if scaled else optimizer
        self._optimizer.build(model.trainable_variables)
        self._steps = Steps(model, self._optimizer, collective, request)
        self._epochs = Epochs(source, request, Shard(collective.rank, collective.size))
        self._reported_s = time.monotonic()
        self.best_weights: list[Any] | None = None
        """Weights of the best epoch in the model's order, where they are asked for."""

    def warm_up(self) -> None:
        """Trace and optimise the graphs with a step on empty images, and fetch the first batch.

        The model and the optimiser are as new afterwards; nothing of it is counted. Raises TrialFailedError.
        """
        variables = [*self._model.variables, *self._optimizer.variables]
        before = [variable.numpy() for variable in variables]
        images = tf.zeros((1, *self._model.input_shape[1:]))
        labels = tf.one_hot([0], self._model.output_shape[-1])
        self._steps.train(images, labels)
        self._steps.evaluate(images, labels)
        for variable, value in zip(variables, before, strict=True):
            variable.assign(value)
        self._epochs.open(1)

    def run(self, begin: Begin, report: Reporter) -> bool:
        """Train the epochs of the round; True where patience ended it. Raises TrialFailedError on a NaN loss.

        With `save_weights_path`, the weights of the best epoch are kept and `best_weights` gives them.
        """
        checkpoints = Checkpoints(begin, self._model, self._optimizer, self._collective)
        try:
            return self._train_epochs(begin, checkpoints, report)
        finally:
            checkpoints.close()

    def _train_epochs(self, begin: Begin, checkpoints: Checkpoints, report: Reporter) -> bool:
        accuracies = self._resume(checkpoints)
        self._collective.broadcast_variables([*self._model.weights, *self._optimizer.variables])
        for epoch in range(len(accuracies) + 1, self._request.epochs + 1):
            facts = self._epoch(epoch, report)
            report.epoch(facts)
            accuracies.append(facts.quality or 0.0)
            if begin.save_weights_path is not None and accuracies[-1] == max(accuracies):
                self.best_weights = self._model.get_weights()
            if out_of_patience(accuracies, self._request.patience):
                return True
            if epoch < self._request.epochs and checkpoints.due():
                report.phase("checkpoint")
                checkpoints.write(Checkpoint(accuracies, self.best_weights))
        return False

    def _resume(self, checkpoints: Checkpoints) -> list[float]:
        restored = checkpoints.restore()
        if restored is None:
            return []
        self.best_weights = restored.best_weights
        return restored.accuracies

    def _epoch(self, epoch: int, report: Reporter) -> EpochFacts:
        report.phase("train")
        learning_rate = float(self._schedule(self._optimizer.iterations))
        totals, trained = np.zeros(2), 0
        for sums, certain in self._walk(self._steps.train, self._epochs.train(epoch), self._train_steps, epoch):
            totals, trained = totals + sums, trained + int(sums[-1])
            if certain:
                report.progress(ProgressFacts(epoch=epoch, images_trained=trained, images_evaluated=0))
        if epoch < self._request.epochs:
            self._epochs.open(epoch + 1)
        self._collective.average_variables(self._model.non_trainable_weights)
        report.phase("evaluate")
        scores, evaluated = np.zeros(3), 0
        validation = self._epochs.validation()
        for sums, certain in self._walk(self._steps.evaluate, validation, self._evaluate_steps, epoch):
            scores, evaluated = scores + sums, evaluated + int(sums[-1])
            if certain:
                facts = ProgressFacts(epoch=epoch, images_trained=trained, images_evaluated=evaluated)
                report.progress(facts)
        return EpochFacts(
            epoch=epoch,
            images_trained=trained,
            images_evaluated=evaluated,
            correct=round(scores[1]),
            loss=float(totals[0]) / trained,
            validation_loss=float(scores[0]) / evaluated,
            learning_rate=learning_rate,
        )

    def _walk(self, step: Step, batches: Batches, steps: int, epoch: int) -> Iterator[tuple[Any, bool]]:
        """Sums of the steps that are done, in doubles, and whether to report them.

        The device is not waited for at every step: sums are read in groups, each within a reporting interval.
        """
        pending: list[Any] = []
        for number in range(steps):
            images, labels = next(batches, None) or self._nothing()
            pending.append(step(images, labels))
            due = time.monotonic() - self._reported_s >= self._request.progress_interval_s
            if due or number == steps - 1:
                sums = np.sum([sums.numpy().astype(np.float64) for sums in pending], axis=0)
                pending = []
                _check_finite(sums[0], epoch)
                self._reported_s = time.monotonic() if due else self._reported_s
                yield sums, due and number < steps - 1

    def _nothing(self) -> tuple[Any, Any]:
        """An empty batch: this rank has had all its images, others have not."""
        return tf.zeros((0, *self._model.input_shape[1:])), tf.zeros((0, self._model.output_shape[-1]))


def _check_finite(loss: float, epoch: int) -> None:
    if not math.isfinite(loss):
        raise TrialFailedError("nan", f"the loss is {loss} in epoch {epoch}")
