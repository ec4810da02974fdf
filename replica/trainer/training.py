"""The training of one model: pipelines, steps, epochs, evidence, evaluation, checkpoints.

All counts are of images that were really processed, as the steps themselves report them.
"""

import itertools
import logging
import math
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from aiperf.clock import Clock
from aiperf.errors import TrialFailedError
from aiperf.facts import BuiltFacts, EpochFacts, ProgressFacts
from aiperf.rules.rounds import out_of_patience
from aiperf.run_directory.step_evidence import append_rows, hash_rows, hash_weights, rows_of
from aiperf.source_code import source_hash
from aiperf.wire.messages import Begin, TrainRequest
from replica.trainer.channel import Reporter
from replica.trainer.checkpoints import Checkpoint, Checkpoints, Taken
from replica.trainer.collectives.contract import Collective
from replica.trainer.data.contract import Batches, DataSource, RankShare, blank_batch
from replica.trainer.framework import CompiledSteps, Framework, TaskSteps
from replica.trainer.model import built
from replica.trainer.model.weights import BestWeights
from replica.trainer.schedules import Rate
from replica.trainer.settings import framework_variables
from workloads.contract import Sums, TrainedWorkload


def built_facts(
    framework: Framework,
    collective: Collective,
    model: Any,
    steps: CompiledSteps | TaskSteps,
    architecture: str,
    fingerprint: str | None,
) -> BuiltFacts:
    """Facts of the model that rank 0 has built, and the devices and places of all ranks.

    Every rank calls it: it gathers.
    """
    return BuiltFacts(
        architecture=architecture,
        compute=built.compute_types(model),
        devices=collective.gather(framework.device(collective.local_rank)),
        framework=framework.name(),
        source_hash=source_hash(),
        environment=framework_variables(),
        fingerprint=fingerprint,
        compiled=steps.compiled(),
        places=collective.gather_places(),
    )


# Input pipelines of the epochs, filled ahead.
#
# A pipeline takes seconds to shuffle, decode and fill: each is opened while the one before is in
# use, so that no accelerator waits for it.


class Epochs:
    """The batches of one rank. Failures of opening are raised when the batches are used."""

    def __init__(self, source: DataSource, request: TrainRequest, share: RankShare, clock: Clock) -> None:
        self._source = source
        self._request = request
        self._share = share
        self._clock = clock
        self.waited_s = 0.0
        """Seconds for which the training waited for batches of its last epoch."""
        self._opener = ThreadPoolExecutor(1)
        self._train: dict[int, Future[Batches]] = {}
        self._validation: Future[Batches] | None = None

    def open(self, epoch: int) -> None:
        """Start to fill the pipelines of an epoch, in the background."""
        if epoch not in self._train:
            self._train[epoch] = self._opener.submit(self._first, epoch)

    def train(self, epoch: int) -> Batches:
        """Give the training batches of an epoch, and open the validation pipeline behind them."""
        self.open(epoch)
        begun_s = self._clock.monotonic_s()
        batches = self._train.pop(epoch).result()
        self.waited_s = self._clock.monotonic_s() - begun_s
        self._validation = self._opener.submit(self._first, None)
        return self._timed(batches)

    def _timed(self, batches: Batches) -> Batches:
        """The same batches, counting the time that each of them takes."""
        while True:
            begun_s = self._clock.monotonic_s()
            batch = next(batches, None)
            self.waited_s += self._clock.monotonic_s() - begun_s
            if batch is None:
                return
            yield batch

    def validation(self) -> Batches:
        """Give the validation batches."""
        future = self._validation or self._opener.submit(self._first, None)
        self._validation = None
        return future.result()

    def _first(self, epoch: int | None) -> Batches:
        batches = self._batches(epoch)
        # Pipelines are lazy: taking the first batch makes them open files and fill their buffers.
        return itertools.chain(list(itertools.islice(batches, 1)), batches)

    def _batches(self, epoch: int | None) -> Batches:
        size = self._request.batch_size
        # In a hybrid training group 0 alone evaluates: its ranks share all of the images.
        if epoch is None:
            return self._source.validation_batches(size, self._share.in_group)
        return self._source.train_batches(size, self._request.seed, epoch, self._share)


class Changes:
    """Something that is said again only if it has changed."""

    def __init__(self, now: Callable[[], str]) -> None:
        self._now = now
        self._said: str | None = None

    def take(self) -> str | None:
        """Give what holds now; None if it is what was given last."""
        before, self._said = self._said, self._now()
        return self._said if self._said != before else None


# Evidence of a training's steps: losses and gradient norms, which rank 0 writes and a referee can
# repeat (`aiperf.run_directory.step_evidence`).

log = logging.getLogger(__name__)


class Evidence:
    """The results of training steps, which are written at the end of their epoch.

    A file that cannot be written costs a warning in the log, and the epoch its hash.
    """

    def __init__(self, path: str | None, rank: int) -> None:
        self._path = Path(path) if path is not None and rank == 0 else None
        self._results: list[NDArray[np.float32]] = []

    @property
    def wanted(self) -> bool:
        """True on the rank that writes, if evidence is asked for."""
        return self._path is not None

    def add(self, results: NDArray[np.float32]) -> None:
        """Take the results of some steps: loss, images and gradient norm, (steps, 3)."""
        if self.wanted:
            self._results.append(results)

    def close(self, epoch: int) -> str | None:
        """Append the rows of an epoch to the file; give their SHA-256, or None if there is none."""
        if self._path is None or not self._results:
            return None
        loss, images, norms = np.concatenate(self._results).astype(np.float64).T
        self._results = []
        rows = rows_of(epoch, loss / np.maximum(images, 1), norms)
        return hash_rows(rows) if self._append(self._path, rows) else None

    @staticmethod
    def _append(path: Path, rows: NDArray[Any]) -> bool:
        try:
            append_rows(path, rows)
        except OSError as error:
            log.warning("evidence %s was not written: %s", path, error)
            return False
        return True


def steps_for(images: int, request: TrainRequest, ranks: int) -> int:
    """The number of steps for this many images of all ranks together."""
    return math.ceil(images / (request.batch_size * ranks))


def seconds_of(waited_s: float, exchanged_s: float | None) -> dict[str, float | None]:
    """Fields of an epoch's facts: its seconds of waiting for images, and of all-reduce."""
    return {"input_s": round(waited_s, 3), "exchange_s": None if exchanged_s is None else round(exchanged_s, 3)}


class FinalQuality(Protocol):
    """The quality on images that are evaluated once, at the end of a training."""

    @property
    def images(self) -> int:
        """Number of these images."""

    @property
    def counted(self) -> bool:
        """True if they are among the evaluated images of the epoch, as its progress reports say."""

    def batches(self, batch_size: int, share: RankShare) -> Batches:
        """Batches of the rank's part of them, as of validation images."""

    def add(self, facts: EpochFacts, evaluated: Sums) -> EpochFacts:
        """Add the measures of these images to the last epoch's facts; on all ranks together."""


@dataclass(frozen=True, slots=True)
class TrainingInputs:
    """The parts of a training: its workload, images, ranks, request and learning rate."""

    workload: TrainedWorkload
    source: DataSource
    collective: Collective
    request: TrainRequest
    rate: Rate
    final_qualities: tuple[FinalQuality, ...] = ()
    """Qualities that are measured once, at the end."""
    group: int = 0
    """Group of this collective, out of `groups`; 0 unless the training is hybrid."""
    groups: int = 1


class Training:
    """The training of a request, together with the other ranks.

    Epoch facts carry the number of images that were really processed. Built and warmed up first
    (`warm_up`), begun when the accelerators are free (`run`).
    """

    def __init__(self, steps: CompiledSteps, inputs: TrainingInputs, clock: Clock) -> None:
        self._steps = steps
        self._workload = inputs.workload
        self._collective = inputs.collective
        self._request = inputs.request
        self._rate = inputs.rate
        self._final_qualities = inputs.final_qualities
        self._clock = clock
        self._source = inputs.source
        self._images = inputs.source.dataset
        self._blank = partial(blank_batch, inputs.source, inputs.workload)
        self._share = RankShare(inputs.collective.rank, inputs.collective.size, inputs.group, inputs.groups)
        self._epochs = Epochs(inputs.source, inputs.request, self._share, clock)
        self._reported_s = clock.monotonic_s()
        self._exchanged_s: float | None = None
        self._evidence = Evidence(None, inputs.collective.rank)
        self._hasher = ThreadPoolExecutor(1)
        self._compiled = Changes(steps.compiled)

    def warm_up(self) -> None:
        """Compile the steps, and fetch the first batch.

        The state stays as it is, and no image counts. Raises TrialFailedError.
        """
        whole, own = self._request.batch_size, len(self._share.of(self._images.train_images))
        self._steps.prepare(self._blank, (min(whole, own), own % whole))  # whole batches, and the last one
        self._compiled.take()  # the facts of the built model have it
        self._epochs.open(1)

    def run(self, begin: Begin, report: Reporter, kept: BestWeights | None = None) -> bool:
        """Train the epochs of the round, or the steps asked for; True if patience ended it.

        `kept` takes the weights of the best epoch. Raises TrialFailedError on a NaN loss.
        """
        self._evidence = Evidence(begin.evidence_path, self._collective.rank)
        if begin.only_steps is not None:
            self._steps.share()
            self._train(1, report, begin.only_steps)
            self._evidence.close(1)
            return False
        checkpoints = Checkpoints(begin, self._steps, self._collective, self._clock)
        try:
            qualities = checkpoints.resume(kept)
            self._steps.share()
            return self._train_epochs(qualities, checkpoints, report, kept)
        finally:
            checkpoints.close()

    def evaluate(self, report: Reporter, known: int | None = None) -> None:
        """Evaluate the weights that rank 0's model has, as epoch 0 without training.

        With `known`, the seed of a sample of training images, also these (`Begin.evaluate_known`).
        """
        self._steps.share()
        so_far = ProgressFacts(epoch=0, images_trained=0, images_evaluated=0)
        facts = self._facts_of(self._validate(so_far, report))
        facts = replace(facts, weights=hash_weights(self._steps.weights()))
        if known is not None:
            images = min(self._images.train_images, self._images.validation_images)
            batches = self._source.known_batches(self._request.batch_size, known, self._share.in_group)
            found = self._facts_of(self._evaluate(batches, images, so_far, report))
            measures = {"images": float(found.images_evaluated), "correct": float(found.correct or 0)}
            facts = replace(facts, training_measures=measures)
        report.epoch(facts)

    def _facts_of(self, evaluated: Sums) -> EpochFacts:
        """Facts of an evaluation without training."""
        return self._workload.facts(0, _recorded(self._rate(0)), Sums(0, 0.0), evaluated)

    def _train_epochs(
        self, qualities: list[float], checkpoints: Checkpoints, report: Reporter, kept: BestWeights | None
    ) -> bool:
        """Train the epochs after those with these qualities; True if they end early."""
        resumed = checkpoints.resumed
        for epoch in range(len(qualities) + 1, self._request.epochs + 1):
            facts, weights = self._epoch(epoch, report, kept)
            qualities.append(facts.quality or 0.0)
            early = out_of_patience(qualities, self._request.patience) or self._workload.reached(facts)
            self._settle(epoch, early, report)
            # Of equal qualities the latest epoch's weights: they have trained longer.
            if kept is not None and qualities[-1] == max(qualities):
                kept.keep(epoch, weights)
            taken: Taken | None = None
            if not early and epoch < self._request.epochs and checkpoints.due():
                report.phase("checkpoint")
                # Before the report: the epoch's record has the hash of the state.
                taken = checkpoints.take(Checkpoint(qualities, kept.values if kept else None))
            state, compiled = taken.hash if taken else None, self._compiled.take()
            self._report(replace(facts, state=state, resumed=resumed, compiled=compiled), report)
            resumed = None
            if early:
                return True
            if taken is not None:
                checkpoints.write(taken)
        return False

    def _settle(self, epoch: int, early: bool, report: Reporter) -> None:
        """Finish an epoch before it is reported; `early` if it ends the training. No-op here."""

    def _report(self, facts: EpochFacts, report: Reporter) -> None:
        report.epoch(facts)

    def _epoch(self, epoch: int, report: Reporter, kept: BestWeights | None) -> tuple[EpochFacts, list[Any]]:
        """Train and evaluate; give the facts, and the weights if they are needed."""
        trained = self._train(epoch, report)
        if epoch < self._request.epochs:
            self._epochs.open(epoch + 1)
        correct = self._steps.take_correct()
        self._steps.average_statistics()
        # After the average of statistics: the weights that are kept are those that are evaluated.
        weights = self._steps.weights() if self._evidence.wanted or kept is not None else []
        # Hashed while the device evaluates: hashing does not hold Python's lock.
        hashed = self._hasher.submit(hash_weights, weights) if self._evidence.wanted else None
        so_far = ProgressFacts(epoch=epoch, images_trained=trained.examples, images_evaluated=0)
        evaluated = self._validate(so_far, report)
        facts = self._workload.facts(epoch, _recorded(self._rate(epoch - 1)), trained, evaluated)
        facts = replace(facts, correct_trained=correct, **seconds_of(self._epochs.waited_s, self._exchanged_s))
        facts = self._judge_finally(facts, so_far, report)
        if hashed is not None:
            facts = replace(facts, evidence=self._evidence.close(epoch), weights=hashed.result())
        return facts, weights

    def _train(self, epoch: int, report: Reporter, limit: int | None = None) -> Sums:
        """Train an epoch, or its first `limit` steps."""
        report.phase("train")
        self._collective.take_exchange_s()  # what came before is not this epoch's
        steps = steps_for(self._images.train_images, self._request, self._collective.size)
        totals = np.zeros(2)
        batches = self._epochs.train(epoch)
        # The images before each step are multiples of the whole batch: only an epoch's last batch
        # is smaller. Counting the real ones would wait for the device at every step.
        images_before = itertools.count(0, self._request.batch_size * self._collective.size)

        def step(images: Any, labels: Any) -> Any:
            self._steps.set_learning_rate(self._rate(epoch - 1 + next(images_before) / self._images.train_images))
            return self._steps.train(images, labels)

        for results, due in self._walk(step, batches, min(limit or steps, steps), epoch):
            self._evidence.add(results)
            totals += results[:, :2].astype(np.float64).sum(axis=0)
            if due:
                report.progress(ProgressFacts(epoch=epoch, images_trained=round(totals[-1]), images_evaluated=0))
        self._exchanged_s = self._collective.take_exchange_s()  # the last results are read: no all-reduce is left
        return Sums.of(totals)

    def _validate(self, so_far: ProgressFacts, report: Reporter) -> Sums:
        report.phase("evaluate")
        return self._evaluate(self._epochs.validation(), self._images.validation_images, so_far, report)

    def _judge_finally(self, facts: EpochFacts, so_far: ProgressFacts, report: Reporter) -> EpochFacts:
        """Evaluate further images in the last epoch of a workload that asks for it."""
        if not (facts.epoch == self._request.epochs or self._workload.reached(facts)):
            return facts
        for quality in self._final_qualities:
            batches = quality.batches(self._request.batch_size, self._share.in_group)
            before = replace(so_far, images_evaluated=facts.images_evaluated)
            facts = quality.add(facts, self._evaluate(batches, quality.images, before, report, quality.counted))
        return facts

    def _evaluate(
        self, batches: Batches, images: int, so_far: ProgressFacts, report: Reporter, counted: bool = True
    ) -> Sums:
        """Evaluate this many images of all ranks; `so_far` has the epoch's images before them."""
        steps = steps_for(images, self._request, self._collective.size)
        totals: Any = 0.0
        for results, due in self._walk(self._steps.evaluate, batches, steps, so_far.epoch):
            totals = totals + results.astype(np.float64).sum(axis=0)
            if due:
                done = round(totals[-1]) if counted else 0
                report.progress(replace(so_far, images_evaluated=so_far.images_evaluated + done))
        return Sums.of(totals)

    def _walk(
        self, step: Callable[[Any, Any], Any], batches: Batches, steps: int, epoch: int
    ) -> Iterator[tuple[NDArray[np.float32], bool]]:
        """Yield results of groups of steps, a row for each, and True if they are to be reported.

        Reading results waits for the device, and lets it run dry. They are read once a reporting
        interval, not after every step.
        """
        pending: list[Any] = []
        for number in range(steps):
            # A rank that has had all of its images takes part with empty batches until the others
            # have, too: an all-reduce waits for all ranks.
            batch = next(batches, None) or self._blank(0)
            pending.append(step(*batch))
            due = self._clock.monotonic_s() - self._reported_s >= self._request.progress_interval_s
            if due or number == steps - 1:
                results = self._steps.read(pending)
                pending = []
                _check_finite(float(results[:, 0].astype(np.float64).sum()), epoch)  # any step's NaN is in the sum
                self._reported_s = self._clock.monotonic_s() if due else self._reported_s
                yield results, due and number < steps - 1  # the end of an epoch is reported by itself


def _recorded(rate: float) -> float:
    """The rate in float32, as frameworks hold it, so that a repeated training records the same."""
    return float(np.float32(rate))


def _check_finite(loss: float, epoch: int) -> None:
    if not np.isfinite(loss):
        raise TrialFailedError("nan", f"the loss is {loss} in epoch {epoch}")
