"""The training of one model: steps, epochs, evaluation, checkpoints, images that really ran."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from aiperf.clock import Clock
from aiperf.errors import TrialFailedError
from aiperf.facts import EpochFacts, ProgressFacts
from aiperf.messages import Begin, TrainRequest
from aiperf.rules.rounds import out_of_patience
from replica.trainer.channel import Reporter
from replica.trainer.checkpoints import Checkpoint, Checkpoints
from replica.trainer.collectives.contract import Collective
from replica.trainer.data.contract import Batches, DataSource, RankShare
from replica.trainer.data.epochs import Epochs
from replica.trainer.framework import CompiledSteps
from workloads.contract import Sums, Workload


def steps_for(images: int, request: TrainRequest, ranks: int) -> int:
    """Steps that all ranks together need for this many images."""
    return math.ceil(images / (request.batch_size * ranks))


@dataclass(frozen=True, slots=True)
class TrainingInputs:
    """A training's parts: what is trained, on which images, by which ranks."""

    workload: Workload
    source: DataSource
    collective: Collective
    request: TrainRequest


class Training:
    """Trains as requested, together with the other ranks.

    Epoch facts carry the number of images that were really processed. Built and warmed up first
    (`warm_up`), begun when the accelerators are free (`run`).
    """

    def __init__(self, steps: CompiledSteps, inputs: TrainingInputs, clock: Clock) -> None:
        self._steps = steps
        self._workload = inputs.workload
        self._collective = inputs.collective
        self._request = inputs.request
        self._clock = clock
        self._images = inputs.source.dataset
        self._epochs = Epochs(inputs.source, inputs.request, RankShare(inputs.collective.rank, inputs.collective.size))
        self._reported_s = clock.monotonic_s()
        self.best_weights: list[Any] | None = None
        """Weights of the best epoch in Keras's order, if they are asked for."""

    def warm_up(self) -> None:
        """Trace and optimise the graphs with a step on a blank image, and fetch the first batch.

        State is as before afterwards; nothing of it is counted. Raises TrialFailedError.
        """
        before = self._steps.state()
        blank = self._workload.blank(1, self._images)
        self._steps.train(*blank)
        self._steps.evaluate(*blank)
        self._steps.restore(before)
        self._epochs.open(1)

    def run(self, begin: Begin, report: Reporter) -> bool:
        """Train the epochs of the round; True if patience ended it.

        Raises TrialFailedError on a NaN loss.

        With `save_weights_path`, `best_weights` are the weights of the best epoch.
        """
        checkpoints = Checkpoints(begin, self._steps, self._collective, self._clock)
        try:
            return self._train_epochs(begin, checkpoints, report)
        finally:
            checkpoints.close()

    def _train_epochs(self, begin: Begin, checkpoints: Checkpoints, report: Reporter) -> bool:
        qualities = self._resume(checkpoints)
        self._steps.share()
        for epoch in range(len(qualities) + 1, self._request.epochs + 1):
            facts = self._epoch(epoch, report)
            report.epoch(facts)
            qualities.append(facts.quality or 0.0)
            if begin.save_weights_path is not None and qualities[-1] == max(qualities):
                self.best_weights = self._steps.weights()
            if out_of_patience(qualities, self._request.patience):
                return True
            if epoch < self._request.epochs and checkpoints.due():
                report.phase("checkpoint")
                checkpoints.write(Checkpoint(qualities, self.best_weights))
        return False

    def _resume(self, checkpoints: Checkpoints) -> list[float]:
        restored = checkpoints.restore()
        if restored is None:
            return []
        self.best_weights = restored.best_weights
        return restored.qualities

    def _epoch(self, epoch: int, report: Reporter) -> EpochFacts:
        report.phase("train")
        learning_rate = self._steps.learning_rate()

        def report_trained(images: int) -> None:
            report.progress(ProgressFacts(epoch=epoch, images_trained=images, images_evaluated=0))

        trained = self._sums(self._walk(self._steps.train, self._epochs.train(epoch), self._images.train_images, epoch),
                             report_trained)  # fmt: skip
        if epoch < self._request.epochs:
            self._epochs.open(epoch + 1)
        self._steps.average_statistics()
        report.phase("evaluate")

        def report_evaluated(images: int) -> None:
            facts = ProgressFacts(epoch=epoch, images_trained=trained.examples, images_evaluated=images)
            report.progress(facts)

        validation = self._epochs.validation()
        evaluated = self._sums(self._walk(self._steps.evaluate, validation, self._images.validation_images, epoch),
                               report_evaluated)  # fmt: skip
        return self._workload.facts(epoch, learning_rate, trained, evaluated)

    @staticmethod
    def _sums(groups: Iterator[tuple[Any, bool]], report: Callable[[int], None]) -> Sums:
        """Add up all groups of steps, reporting the images so far after those that are due."""
        totals: Any = 0.0
        for sums, due in groups:
            totals = totals + sums
            if due:
                report(round(totals[-1]))
        return Sums.of(totals)

    def _walk(
        self, step: Callable[[Any, Any], Any], batches: Batches, images: int, epoch: int
    ) -> Iterator[tuple[Any, bool]]:
        """Sums of groups of steps, in doubles, and whether to report them.

        Reading sums waits for the device. They are read once a reporting interval, not after every
        step.
        """
        steps = steps_for(images, self._request, self._collective.size)
        pending: list[Any] = []
        for number in range(steps):
            # A rank that has had all its images takes part with an empty batch until the others
            # have.
            batch = next(batches, None) or self._workload.blank(0, self._images)
            pending.append(step(*batch))
            due = self._clock.monotonic_s() - self._reported_s >= self._request.progress_interval_s
            if due or number == steps - 1:
                sums = self._steps.add_up(pending)
                pending = []
                _check_finite(float(sums[0]), epoch)
                self._reported_s = self._clock.monotonic_s() if due else self._reported_s
                yield sums, due and number < steps - 1


def _check_finite(loss: float, epoch: int) -> None:
    if not np.isfinite(loss):
        raise TrialFailedError("nan", f"the loss is {loss} in epoch {epoch}")
