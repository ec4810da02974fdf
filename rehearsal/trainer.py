"""A trainer that only lets time pass, with made-up curves and the pace of the machine file."""

import random
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from math import exp, inf
from pathlib import Path

from msgspec.structs import replace

from aiperf.clock import Clock
from aiperf.config.datasets import Dataset
from aiperf.errors import TrialFailedError
from aiperf.facts import BuiltFacts, EpochFacts, ProgressFacts
from aiperf.network.architecture import Architecture
from aiperf.rules.rounds import out_of_patience
from aiperf.source_code import source_hash
from aiperf.wire.messages import (
    Begin,
    FromTrainer,
    Phase,
    TrainerDone,
    TrainerEpoch,
    TrainerExchange,
    TrainerPhase,
    TrainerProgress,
    TrainRequest,
)
from rehearsal.machine.file import MachineFile
from rehearsal.pace import LIVES, Grouped, Pace, evaluation_s, pace_of, plan_of
from rehearsal.subject import subject_of
from replica.agent.trial.trainer import Trainer
from replica.trainer.simulated_groups.epochs import Alone, Ended, Epochs, InGroups

FRAMEWORK = "simulated"

Training = tuple[str, int]
"""A training as its resumptions know it: hash of the architecture, and seed."""


@dataclass(frozen=True)
class Bench:
    """Bench for a replica's trainings."""

    machine: MachineFile
    dataset: Dataset | None
    """The data set of AutoML; None for another suite."""
    clock: Clock
    load: Callable[[str], Architecture]
    """Gives the architecture of a hash."""
    slower: float = 1.0
    """Factor by which everything takes longer here."""
    lives_s: Callable[[int], float] = field(default=lambda ranks: inf)
    """Draws the seconds of work until one of this many ranks dies."""
    report_s: Callable[[float], float] = field(default=lambda configured_s: configured_s)
    """Seconds until the next report of progress; its argument: as configured."""
    checkpoints: dict[Training, list[float]] = field(default_factory=dict)
    """The qualities of trainings, for whichever replica resumes them."""


class ModelledTrainer(Trainer):
    """Reports what a training on the machine would, at the times at which it would."""

    def __init__(self, request: TrainRequest, bench: Bench) -> None:
        self._request = request
        self._bench = bench
        self._clock = bench.clock
        self._begin = Begin(trial=0)
        self._kept_s = 0.0
        """Time at which the last checkpoint was written."""
        self._subject = subject_of(request, bench.machine, bench.dataset, bench.load)
        self._course = self._subject.course
        self._training: Training = self._course.architecture, request.seed
        cost, weights, data = self._subject.cost, self._subject.weights, self._subject.dataset
        self.pace: Pace = pace_of(bench.machine, cost, weights, request.batch_size, data)
        node = bench.machine.node
        self._groups = 1 if request.hybrid is None else request.hybrid.groups
        self._ranks_at_risk = node.ranks // self._groups
        """Ranks whose death ends the training: those of group 0, which leads it."""
        self._server_ends_s = inf
        """Time at which a server's last death ends the training."""
        self.built = BuiltFacts(
            architecture=self._course.architecture,
            compute={},
            devices=(node.accelerator,) * node.ranks,
            framework=FRAMEWORK,
            source_hash=source_hash(),
            environment={},
        )

    async def warm_up(self, silence_s: float) -> AsyncIterator[TrainerPhase]:
        """Building and compiling."""
        yield self._phase("build")
        await self._work(self._bench.machine.start.build_s)

    async def begin(self, message: Begin) -> None:
        """Note which trial it is, and where its state is kept."""
        self._begin = message

    async def messages(self, silence_s: float) -> AsyncIterator[FromTrainer]:
        """The epochs of the round, until patience or the target ends them.

        Raises TrialFailedError ("rank_lost") if a rank dies: one of group 0, if there are several,
        or a server once more than it is started again.
        """
        qualities, self._kept_s = self._restored(), self._clock.monotonic_s()
        await self._work(self._bench.machine.start.trial_s)
        early, epochs, began_s = False, self._epochs(len(qualities) + 1), self._clock.monotonic_s()
        for epoch in range(len(qualities) + 1, self._request.epochs + 1):
            yield self._phase("train")
            left_s = training_s = epochs.train(epoch)
            self._server_ends_s = began_s + epochs.ends_s
            while left_s > (report_s := self._bench.report_s(self._request.progress_interval_s)):
                await self._work(report_s)
                left_s -= report_s
                yield self._progress(epoch, epochs.images(1 - left_s / training_s))
            await self._work(left_s)
            yield self._phase("evaluate")
            facts = self._facts(epoch)
            await self._work(evaluated_s := self._evaluation_s(facts))
            qualities.append(facts.quality or 0.0)
            early = out_of_patience(qualities, self._request.patience) or self._course.reached(facts)
            ended = epochs.end(facts, early, evaluated_s)
            # Asked again: a server's last death is known only once an update has come since.
            self._server_ends_s = began_s + epochs.ends_s
            if ended.waits_s or epochs.ends_s < inf:
                await self._work(ended.waits_s)
            for report in self._reports(ended):
                yield report
            if early:
                break
            self._keep(qualities)
        yield TrainerDone(monotonic_ms=self._clock.monotonic_ms(), early=early)
        self._bench.checkpoints.pop(self._training, None)

    def _epochs(self, first_epoch: int) -> Epochs:
        if self._request.hybrid is None:
            return Alone(self._course.train_images, lambda epoch: self.pace.training_s * self._slower(epoch))
        seed = f"{self._request.seed} {self._begin.trial}"
        own = Grouped(self._request, self._subject, self._bench.slower, first_epoch, seed)
        return InGroups(plan_of(self._bench.machine, own, self._bench.lives_s))

    def _reports(self, ended: Ended) -> Iterator[FromTrainer]:
        now_ms = self._clock.monotonic_ms()
        if ended.exchange is not None:
            yield TrainerExchange(monotonic_ms=now_ms, groups=ended.exchange.groups, servers=ended.exchange.servers)
        yield TrainerEpoch(monotonic_ms=now_ms, facts=ended.facts)

    async def _work(self, seconds: float) -> None:
        # The exponential distribution has no memory, so each piece of work can be drawn for itself.
        dies_s = self._bench.lives_s(self._ranks_at_risk)
        server_dies_s = max(0.0, self._server_ends_s - self._clock.monotonic_s())
        if (first_s := min(dies_s, server_dies_s)) <= seconds:
            await self._clock.sleep(first_s)
            what, often = ("rank", "") if dies_s < server_dies_s else ("server", f" {LIVES} times")
            raise TrialFailedError("rank_lost", f"a {what} of the rehearsal died{often}, as its machine file has it")
        await self._clock.sleep(seconds)

    def _slower(self, epoch: int) -> float:
        """The factor by which an epoch takes longer; but for the replica's own, its mean is 1."""
        drawn = random.Random(f"pace {self._request.seed} {self._begin.trial} {epoch}")  # noqa: S311  not for secrets
        spread = self._bench.machine.step.spread
        # The mean of exp(N(m, s^2)) is exp(m + s^2 / 2), so this m makes it 1.
        return self._bench.slower * exp(drawn.gauss(-(spread**2) / 2, spread))

    def _evaluation_s(self, facts: EpochFacts) -> float:
        images = facts.images_evaluated + (facts.test_images or 0)
        forward, batch = self._subject.cost.forward, self._request.batch_size
        seconds = evaluation_s(self._bench.machine, forward, batch, images, self._groups)
        return seconds * (self._slower(facts.epoch) if self._groups == 1 else self._bench.slower)

    def _phase(self, phase: Phase) -> TrainerPhase:
        return TrainerPhase(monotonic_ms=self._clock.monotonic_ms(), phase=phase)

    def _progress(self, epoch: int, images: int) -> TrainerProgress:
        facts = ProgressFacts(epoch=epoch, images_trained=images, images_evaluated=0)
        return TrainerProgress(monotonic_ms=self._clock.monotonic_ms(), facts=facts)

    def _facts(self, epoch: int) -> EpochFacts:
        facts = self._course.facts(epoch)
        if self._groups > 1:
            return facts
        slower, pace = self._slower(epoch), self.pace
        return replace(
            facts,
            input_s=round(pace.input_s * slower, 3),
            exchange_s=round(pace.exchange_s * slower, 3) if pace.exchange_s else None,
        )

    def _restored(self) -> list[float]:
        """The qualities of the earlier epochs, from the checkpoint of the resumed trial."""
        return self._bench.checkpoints.get(self._training, [])[: self._begin.restore]

    def _keep(self, qualities: list[float]) -> None:
        now_s = self._clock.monotonic_s()
        if self._begin.checkpoint_path is not None and now_s - self._kept_s >= self._begin.checkpoint_interval_s:
            self._kept_s = now_s
            self._bench.checkpoints[self._training] = list(qualities)

    def rename_log(self, log: Path) -> None:
        """No-op: there is no log."""

    async def end(self) -> None:
        """No-op: there are no processes."""
