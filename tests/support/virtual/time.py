"""Replicas of a whole run in one process and in virtual time; only the training is modelled."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

from aiperf.clock import Clock
from aiperf.config.settings import RunConfig
from aiperf.facts import EpochFacts, ProgressFacts
from aiperf.records.history_files import HistoryWriter
from aiperf.run_directory.paths import RunPaths
from aiperf.wire.messages import (
    Begin,
    FromTrainer,
    TrainerDone,
    TrainerEpoch,
    TrainerPhase,
    TrainerProgress,
    TrainRequest,
)
from primary.launchers.contract import ReplicaProcess, ReplicaSpec
from rehearsal.virtual.clock import VirtualClock
from rehearsal.virtual.loop import VirtualLoop
from rehearsal.virtual.processes import Send, VirtualProcess
from replica.agent.agent import Agent
from replica.agent.trial.context import ReplicaContext
from replica.agent.trial.trainer import Trainer
from replica.search.planner import Memory, Planner


class VirtualTrainer(Trainer):
    """Takes `simulated.epoch_seconds` per epoch, reported in halves; accuracy grows with epochs."""

    def __init__(self, request: TrainRequest, config: RunConfig, clock: Clock) -> None:
        self._request = request
        self._config = config
        self._clock = clock

    async def warm_up(self, silence_s: float) -> AsyncIterator[TrainerPhase]:
        yield TrainerPhase(monotonic_ms=self._clock.monotonic_ms(), phase="build")
        await self._clock.sleep(self._config.simulated.epoch_seconds / 2)

    async def begin(self, message: Begin) -> None:
        """No-op: the epochs begin when they are asked for."""

    async def messages(self, silence_s: float) -> AsyncIterator[FromTrainer]:
        dataset, half_s = self._config.dataset, self._config.simulated.epoch_seconds / 2
        for epoch in range(1, self._request.epochs + 1):
            yield TrainerPhase(monotonic_ms=self._clock.monotonic_ms(), phase="train")
            await self._clock.sleep(half_s)
            progress = ProgressFacts(epoch=epoch, images_trained=dataset.train_images // 2, images_evaluated=0)
            yield TrainerProgress(monotonic_ms=self._clock.monotonic_ms(), facts=progress)
            await self._clock.sleep(half_s)
            facts = EpochFacts(
                epoch=epoch,
                images_trained=dataset.train_images,
                images_evaluated=dataset.validation_images,
                correct=dataset.validation_images * epoch // (epoch + 1),
                loss=1.0,
                validation_loss=1.0,
                learning_rate=self._request.learning_rate * (1 - (epoch - 1) / self._request.max_epochs),
            )
            yield TrainerEpoch(monotonic_ms=self._clock.monotonic_ms(), facts=facts)
        yield TrainerDone(monotonic_ms=self._clock.monotonic_ms(), early=False)

    def rename_log(self, log: Path) -> None:
        """No-op: there is no log."""

    async def end(self) -> None:
        """No-op: there are no processes."""


@dataclass(frozen=True)
class Machine:
    """A replica's devices, and the trainer that models them."""

    ranks: int = 1
    memory: Memory = field(default_factory=Memory)
    trainer: Callable[[TrainRequest, RunConfig, Clock], Trainer] = VirtualTrainer


class InProcessLauncher:
    """Starts replicas as tasks. Their clocks are off by a second more each."""

    per_node = 1

    def __init__(self, config: RunConfig, paths: RunPaths, loop: VirtualLoop, machine: Machine | None = None) -> None:
        self.clock = VirtualClock(loop)
        """The primary's."""
        self._config = config
        self._paths = paths
        self._loop = loop
        self._machine = machine or Machine()

    async def start(self, spec: ReplicaSpec) -> ReplicaProcess:
        clock, machine = VirtualClock(self._loop, offset_ms=1000 * spec.replica), self._machine

        async def serve(reader: asyncio.StreamReader, send: Send) -> None:
            async def start_trainer(request: TrainRequest, log: Path) -> Trainer:
                return machine.trainer(request, self._config, clock)

            with HistoryWriter(self._paths, f"replica-{spec.replica:04d}", clock) as writer:
                context = ReplicaContext(
                    replica=spec.replica,
                    config=self._config,
                    paths=self._paths,
                    writer=writer,
                    search=Planner(spec.replica, self._config, self._paths, machine.memory),
                    ranks=machine.ranks,
                    start_trainer=start_trainer,
                    precision=machine.memory.precision,
                    send=send,
                )
                await Agent(context).serve(reader)

        return VirtualProcess(serve)
