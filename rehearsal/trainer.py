"""A trainer that only lets time pass, with made-up curves and the pace of the machine file."""

from __future__ import annotations

import math
import random
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from math import ceil, exp, log2
from pathlib import Path

from aiperf.clock import Clock
from aiperf.config.datasets import Dataset
from aiperf.config.space import Value
from aiperf.errors import TrialFailedError
from aiperf.facts import BuiltFacts, EpochFacts, ProgressFacts
from aiperf.network.architecture import Architecture
from aiperf.network.operations import Operations, totals
from aiperf.rules.rounds import learning_rate, out_of_patience
from aiperf.source_code import source_hash
from aiperf.wire.messages import (
    Begin,
    FromTrainer,
    Phase,
    TrainerDone,
    TrainerEpoch,
    TrainerPhase,
    TrainerProgress,
    TrainRequest,
)
from rehearsal.machine.file import AllReduceSection, CurveSection, MachineFile
from replica.agent.trial.trainer import Trainer

# Learning curves: quality saturates exponentially over the epochs, with noise.
#
# The gain of an architecture follows from its hash, and the loss by hyperparameters from the
# distance of the learning rate to 0.1: a search has something to find, and a rehearsal can be
# repeated exactly.

LOSS_AT_FIRST = 5.0


class Curve:
    """The quality of one training after each epoch."""

    def __init__(
        self, settings: CurveSection, architecture: str, hyperparameters: Mapping[str, Value], seed: int
    ) -> None:
        self._settings = settings
        self._seed = seed
        gain = settings.gain * random.Random(f"architecture {architecture}").random()  # noqa: S311  not for secrets
        self._limit = min(0.999, settings.best + gain - _penalty(hyperparameters))

    def accuracy(self, epoch: int) -> float:
        """Top-1 accuracy after an epoch, from 1: a resumed training repeats what was."""
        noise = random.Random(f"{self._seed} {epoch}").gauss(0.0, self._settings.noise)  # noqa: S311
        reached = self._limit * (1 - math.exp(-epoch / self._settings.epochs)) + noise
        return min(0.999, max(0.0, reached))

    def loss(self, epoch: int) -> float:
        """Training loss after an epoch."""
        return 1.0 + LOSS_AT_FIRST * math.exp(-epoch / self._settings.epochs)


def _penalty(hyperparameters: Mapping[str, Value]) -> float:
    """Accuracy that a learning rate loses: 1 % for a factor of e from 0.1."""
    rate = float(hyperparameters.get("learning_rate", 0.1))
    return 0.01 * abs(math.log(max(rate, 1e-9) / 0.1))


# The pace of a training on a machine.
#
# A step takes as long as its operations at the accelerator's rate, a launch, and the part of the
# all-reduce that the backward pass does not hide; or, if that is longer, as long as the node's
# input pipeline needs for its images. All-reduce by latency and bandwidth as in Thakur,
# Rabenseifner and Gropp, Optimization of Collective Communication Operations in MPICH (2005),
# section 4.

BYTES_OF_GRADIENT = 4


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds of an epoch, and where they go."""

    training_s: float
    evaluation_s: float
    compute_s: float
    """Seconds of computing in the training: the accelerator works on counted operations."""
    launch_s: float
    exchange_s: float
    """All-reduce that nothing hides."""
    input_s: float
    """Waiting for images."""

    @property
    def epoch_s(self) -> float:
        """Training and evaluation."""
        return self.training_s + self.evaluation_s


def all_reduce_s(settings: AllReduceSection, ranks: int, weights: int) -> float:
    """Seconds to sum the gradients of `weights` float32 weights over the ranks of a replica."""
    if ranks < 2:
        return 0.0
    size = weights * BYTES_OF_GRADIENT
    if settings.algorithm == "ring":
        # A ring passes 2 (n - 1) parts of 1/n of the gradients: reduce-scatter, then all-gather.
        return 2 * (ranks - 1) * (settings.latency_s + size / ranks / settings.bytes_per_s)
    return 2 * ceil(log2(ranks)) * (settings.latency_s + size / settings.bytes_per_s)


def pace_of(machine: MachineFile, cost: Operations, weights: int, batch_size: int, dataset: Dataset) -> Pace:
    """The pace of a training of `cost` operations per image, with `batch_size` images per rank."""
    ranks, step = machine.node.accelerators, machine.step
    steps = ceil(dataset.train_images / (batch_size * ranks))
    images = dataset.train_images / steps
    compute_s = images / ranks * cost.total / step.operations_per_s
    exchange_s = (1 - machine.all_reduce.overlap) * all_reduce_s(machine.all_reduce, ranks, weights)
    busy_s = compute_s + step.seconds + exchange_s
    step_s = max(busy_s, images / machine.input.images_per_s)
    rate = step.evaluation_operations_per_s or step.operations_per_s
    evaluated = dataset.validation_images
    evaluation_s = max(
        evaluated / ranks * cost.forward / rate + ceil(evaluated / (batch_size * ranks)) * step.seconds,
        evaluated / machine.input.images_per_s,
    )
    return Pace(
        training_s=steps * step_s,
        evaluation_s=evaluation_s,
        compute_s=steps * compute_s,
        launch_s=steps * step.seconds,
        exchange_s=steps * exchange_s,
        input_s=steps * (step_s - busy_s),
    )


# The trainer itself.

FRAMEWORK = "simulated"

Training = tuple[str, int]
"""A training as its resumptions know it: hash of the architecture, and seed."""


@dataclass(frozen=True)
class Bench:
    """Bench for a replica's trainings."""

    machine: MachineFile
    dataset: Dataset
    clock: Clock
    load: Callable[[str], Architecture]
    """Gives the architecture of a hash."""
    slower: float = 1.0
    """Factor by which everything takes longer here."""
    fails: Callable[[float], float | None] = field(default=lambda seconds: None)
    """Seconds after which a rank dies of work that takes that long; None: it does not."""
    report_s: Callable[[float], float] = field(default=lambda configured_s: configured_s)
    """Seconds until the next report of progress; its argument: as configured."""
    checkpoints: dict[Training, list[float]] = field(default_factory=dict)
    """The accuracies of trainings, for whichever replica resumes them."""


@cache
def _source() -> str:
    """One program conducts a whole rehearsal, whatever becomes of its files meanwhile."""
    return source_hash()


class ModelledTrainer(Trainer):
    """Reports what a training on the machine would, at the times at which it would."""

    def __init__(self, request: TrainRequest, bench: Bench) -> None:
        self._request = request
        self._bench = bench
        self._clock = bench.clock
        self._begin = Begin(trial=0)
        self._kept_s = 0.0
        """Time at which the last checkpoint was written."""
        architecture = request.architecture_hash or ""
        self._training: Training = architecture, request.seed
        operations, weights = totals(bench.load(architecture))
        self.pace: Pace = pace_of(bench.machine, operations, weights, request.batch_size, bench.dataset)
        chosen = {"learning_rate": request.learning_rate}
        self._curve = Curve(bench.machine.curve, architecture, chosen, request.seed)
        node = bench.machine.node
        self.built = BuiltFacts(
            architecture=architecture, compute={}, devices=(node.accelerator,) * node.accelerators,
            framework=FRAMEWORK, source_hash=_source(), environment={},
        )  # fmt: skip

    async def warm_up(self, silence_s: float) -> AsyncIterator[TrainerPhase]:
        """Building and compiling."""
        yield self._phase("build")
        await self._work(self._bench.machine.start.build_s)

    async def begin(self, message: Begin) -> None:
        """Note which trial it is, and where its state is kept."""
        self._begin = message

    async def messages(self, silence_s: float) -> AsyncIterator[FromTrainer]:
        """The epochs of the round, until patience ends them.

        Raises TrialFailedError ("rank_lost") if a rank dies.
        """
        accuracies, self._kept_s = self._restored(), self._clock.monotonic_s()
        await self._work(self._bench.machine.start.trial_s)
        early = False
        for epoch in range(len(accuracies) + 1, self._request.epochs + 1):
            yield self._phase("train")
            slower = self._bench.slower * exp(self._noise(epoch))
            left_s = training_s = self.pace.training_s * slower
            while left_s > (report_s := self._bench.report_s(self._request.progress_interval_s)):
                await self._work(report_s)
                left_s -= report_s
                yield self._progress(epoch, 1 - left_s / training_s)
            await self._work(left_s)
            yield self._phase("evaluate")
            await self._work(self.pace.evaluation_s * slower)
            facts = self._facts(epoch, slower)
            yield TrainerEpoch(monotonic_ms=self._clock.monotonic_ms(), facts=facts)
            accuracies.append(facts.accuracy or 0.0)
            if early := out_of_patience(accuracies, self._request.patience):
                break
            self._keep(accuracies)
        yield TrainerDone(monotonic_ms=self._clock.monotonic_ms(), early=early)
        self._bench.checkpoints.pop(self._training, None)

    async def _work(self, seconds: float) -> None:
        dies_s = self._bench.fails(seconds)
        if dies_s is not None:
            await self._clock.sleep(dies_s)
            raise TrialFailedError("rank_lost", "a rank of the rehearsal died, as its machine file has it")
        await self._clock.sleep(seconds)

    def _noise(self, epoch: int) -> float:
        """Logarithm of a factor whose mean is 1."""
        drawn = random.Random(f"pace {self._request.seed} {self._begin.trial} {epoch}")  # noqa: S311  not for secrets
        spread = self._bench.machine.step.spread
        # The mean of exp(N(m, s^2)) is exp(m + s^2 / 2), so this m makes it 1.
        return drawn.gauss(-(spread**2) / 2, spread)

    def _phase(self, phase: Phase) -> TrainerPhase:
        return TrainerPhase(monotonic_ms=self._clock.monotonic_ms(), phase=phase)

    def _progress(self, epoch: int, done: float) -> TrainerProgress:
        images = self._bench.dataset.train_images
        trained = min(images - 1, int(images * done))
        facts = ProgressFacts(epoch=epoch, images_trained=trained, images_evaluated=0)
        return TrainerProgress(monotonic_ms=self._clock.monotonic_ms(), facts=facts)

    def _facts(self, epoch: int, slower: float) -> EpochFacts:
        dataset, request = self._bench.dataset, self._request
        loss = self._curve.loss(epoch)
        return EpochFacts(
            epoch=epoch, images_trained=dataset.train_images, images_evaluated=dataset.validation_images,
            correct=round(dataset.validation_images * self._curve.accuracy(epoch)), loss=loss, validation_loss=loss,
            learning_rate=learning_rate(request.learning_rate, epoch - 1, request.max_epochs),
            input_s=round(self.pace.input_s * slower, 3),
            exchange_s=round(self.pace.exchange_s * slower, 3) if self.pace.exchange_s else None,
        )  # fmt: skip

    def _restored(self) -> list[float]:
        """The accuracies of the earlier epochs, from the checkpoint of the resumed trial."""
        return self._bench.checkpoints.get(self._training, [])[: self._begin.restore]

    def _keep(self, accuracies: list[float]) -> None:
        now_s = self._clock.monotonic_s()
        if self._begin.checkpoint_path is not None and now_s - self._kept_s >= self._begin.checkpoint_interval_s:
            self._kept_s = now_s
            self._bench.checkpoints[self._training] = list(accuracies)

    def rename_log(self, log: Path) -> None:
        """No-op: there is no log."""

    async def end(self) -> None:
        """No-op: there are no processes."""
