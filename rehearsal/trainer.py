"""A trainer that only lets time pass: as much as the training would take on the machine."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import cache
from math import exp
from pathlib import Path

from aiperf.clock import Clock
from aiperf.config.datasets import Dataset
from aiperf.errors import TrialFailedError
from aiperf.facts import BuiltFacts, EpochFacts, ProgressFacts
from aiperf.network.architecture import Architecture
from aiperf.network.operations import totals
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
from rehearsal.machine.curve import Curve
from rehearsal.machine.file import MachineFile
from rehearsal.machine.pace import Pace, pace_of
from replica.agent.trial.trainer import Trainer

FRAMEWORK = "simulated"

Training = tuple[str, int]
"""A training as its resumptions know it: hash of the architecture, and seed."""


@dataclass(frozen=True)
class Bench:
    """Where a replica's trainings take place."""

    machine: MachineFile
    dataset: Dataset
    clock: Clock
    load: Callable[[str], Architecture]
    """Gives the architecture of a hash."""
    slower: float = 1.0
    """How many times longer everything takes here."""
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
        """When the last checkpoint was written."""
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
            facts = self._facts(epoch)
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
        return drawn.gauss(-(spread**2) / 2, spread)

    def _phase(self, phase: Phase) -> TrainerPhase:
        return TrainerPhase(monotonic_ms=self._clock.monotonic_ms(), phase=phase)

    def _progress(self, epoch: int, done: float) -> TrainerProgress:
        images = self._bench.dataset.train_images
        trained = min(images - 1, int(images * done))
        facts = ProgressFacts(epoch=epoch, images_trained=trained, images_evaluated=0)
        return TrainerProgress(monotonic_ms=self._clock.monotonic_ms(), facts=facts)

    def _facts(self, epoch: int) -> EpochFacts:
        dataset, request = self._bench.dataset, self._request
        loss = self._curve.loss(epoch)
        return EpochFacts(
            epoch=epoch, images_trained=dataset.train_images, images_evaluated=dataset.validation_images,
            correct=round(dataset.validation_images * self._curve.accuracy(epoch)), loss=loss, validation_loss=loss,
            learning_rate=learning_rate(request.learning_rate, epoch - 1, request.max_epochs),
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
