"""A whole run in one process and in virtual time; only the training is modelled.

The event loop's clock jumps to the next timer as soon as no task can run, so hours pass in seconds.
Threads would run in real time; work for them is done at once instead.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from aiperf.clock import Clock
from aiperf.config.settings import RunConfig
from aiperf.facts import EpochFacts, ProgressFacts
from aiperf.history.files import HistoryWriter
from aiperf.message_lines import encode
from aiperf.messages import (
    Begin,
    FromTrainer,
    Message,
    TrainerDone,
    TrainerEpoch,
    TrainerPhase,
    TrainerProgress,
    TrainRequest,
)
from aiperf.run_directory.paths import RunPaths
from primary.launchers.contract import Exit, ReplicaProcess, ReplicaSpec
from replica.agent import Agent
from replica.search.planner import Memory, Planner
from replica.trial.context import ReplicaContext
from replica.trial.trainer import Trainer

T = TypeVar("T")
T0_MS = 1_700_000_000_000


class _JumpingSelector(selectors.DefaultSelector):
    """Polls without waiting; the time that a wait would have taken is added to the loop's clock."""

    skipped_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        """Ready files. Raises RuntimeError if nothing can ever happen again."""
        found = super().select(0)
        if not found:
            if timeout is None:
                raise RuntimeError("every task waits for another: the run would hang")
            self.skipped_s += max(0.0, timeout)
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time starts at 0 and jumps from timer to timer."""

    def __init__(self) -> None:
        self._jumps = _JumpingSelector()
        super().__init__(self._jumps)

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._jumps.skipped_s

    def advance(self, seconds: float) -> None:
        """Let time pass for code that waits without the loop."""
        self._jumps.skipped_s += seconds

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Do the work now: a thread would finish at an unpredictable virtual time."""
        future: asyncio.Future[Any] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


class VirtualClock:
    """A node's clock in virtual time, `offset_ms` off the primary's."""

    def __init__(self, loop: VirtualLoop, offset_ms: int = 0) -> None:
        self._loop = loop
        self._offset_ms = offset_ms

    def utc_ms(self) -> int:
        return self.utc_ms_at(self.monotonic_ms())

    def monotonic_ms(self) -> int:
        return round(self._loop.time() * 1000)

    def utc_ms_at(self, monotonic_ms: int) -> int:
        return T0_MS + self._offset_ms + monotonic_ms

    def monotonic_s(self) -> float:
        return self._loop.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def pause(self, seconds: float) -> None:
        self._loop.advance(seconds)


def run_virtually(main: Callable[[VirtualLoop], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine on a virtual loop."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(main(loop))
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left))
        loop.close()


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
                epoch=epoch, images_trained=dataset.train_images, images_evaluated=dataset.validation_images,
                correct=dataset.validation_images * epoch // (epoch + 1), loss=1.0, validation_loss=1.0,
                learning_rate=self._request.learning_rate * (1 - (epoch - 1) / self._request.max_epochs),
            )  # fmt: skip
            yield TrainerEpoch(monotonic_ms=self._clock.monotonic_ms(), facts=facts)
        yield TrainerDone(monotonic_ms=self._clock.monotonic_ms(), early=False)

    def rename_log(self, log: Path) -> None:
        """No-op: there is no log."""

    async def end(self) -> None:
        """No-op: there are no processes."""


Serve = Callable[[asyncio.StreamReader, Callable[[Message], None]], Coroutine[Any, Any, None]]


class InProcessReplica(ReplicaProcess):
    """An agent as a task of this process, with queues in place of pipes."""

    def __init__(self, serve: Serve) -> None:
        self._input = asyncio.StreamReader()
        self._output: asyncio.Queue[bytes] = asyncio.Queue()
        self._task = asyncio.create_task(serve(self._input, lambda message: self._output.put_nowait(encode(message))))
        self._task.add_done_callback(lambda _: self._output.put_nowait(b""))

    async def send(self, data: bytes) -> None:
        if not self._task.done():
            self._input.feed_data(data)

    async def receive(self) -> bytes:
        return await self._output.get()

    async def wait(self) -> Exit:
        await asyncio.wait({self._task})
        return Exit(0)

    async def explain(self) -> str:
        return ""

    async def cancel(self, grace_s: float) -> Exit:
        self._input.feed_eof()
        await asyncio.wait({self._task}, timeout=grace_s)
        self._task.cancel()
        return await self.wait()


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

        async def serve(reader: asyncio.StreamReader, send: Callable[[Message], None]) -> None:
            async def start_trainer(request: TrainRequest, log: Path) -> Trainer:
                return machine.trainer(request, self._config, clock)

            with HistoryWriter(self._paths, f"replica-{spec.replica:04d}", clock) as writer:
                context = ReplicaContext(
                    replica=spec.replica, config=self._config, paths=self._paths, writer=writer,
                    planner=Planner(spec.replica, self._config, self._paths, machine.memory), ranks=machine.ranks,
                    start_trainer=start_trainer, precision=machine.memory.precision, send=send,
                )  # fmt: skip
                await Agent(context).serve(reader)

        return InProcessReplica(serve)
