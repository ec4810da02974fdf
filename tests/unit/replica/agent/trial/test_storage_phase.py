"""The phase of a trial that waits for its storage."""

import asyncio
import errno
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from aiperf.clock import SystemClock
from aiperf.records.bodies import PhaseBegan
from aiperf.records.history_files import HistoryReader, HistoryWriter
from aiperf.storage.patience import Patience
from aiperf.wire.lines import encode
from aiperf.wire.messages import (
    Begin,
    Finished,
    FromTrainer,
    Job,
    Message,
    Stop,
    StorageWait,
    TrainerDone,
    TrainerPhase,
)
from replica.agent.agent import Agent
from replica.agent.storage import StorageReports
from replica.agent.trial.context import ReplicaContext
from replica.agent.trial.trainer import Trainer
from replica.search.planner import Memory, Planner
from tests.support.hand_made import T0_MS, HandMadeRun


class BriefTrainer(Trainer):
    """A trainer in process that has nothing to train."""

    async def warm_up(self, silence_s: float) -> AsyncIterator[TrainerPhase]:
        yield TrainerPhase(monotonic_ms=T0_MS, phase="build")

    async def begin(self, message: Begin) -> None:
        pass

    async def messages(self, silence_s: float) -> AsyncIterator[FromTrainer]:
        yield TrainerPhase(monotonic_ms=T0_MS, phase="train")
        yield TrainerDone(monotonic_ms=T0_MS, early=False)

    def rename_log(self, log: Path) -> None:
        pass

    async def end(self) -> None:
        pass


class Disk:
    """A disk that is full until `mended`. What the agent notes of it comes in `noted`."""

    def __init__(self, reports: StorageReports) -> None:
        self.mended = threading.Event()
        self.noted = asyncio.Queue[str]()
        self._patience = Patience(3600, reports.of("files"))

    async def write(self) -> None:
        def attempt() -> None:
            if not self.mended.is_set():
                raise OSError(errno.ENOSPC, "No space left on device")

        await asyncio.to_thread(self._patience.attempt, attempt, "a log")


async def one_trial(run: HandMadeRun, full_before: bool) -> list[Message]:
    """Have an agent do a job whose ranks start when a full disk takes their log; what it sends."""
    sent, finished, reader = list[Message](), asyncio.Event(), asyncio.StreamReader()
    loop = asyncio.get_running_loop()

    def send(message: Message) -> None:
        sent.append(message)
        if isinstance(message, Finished):
            loop.call_soon_threadsafe(finished.set)

    reports = StorageReports(send)
    disk = Disk(reports)
    agent = agent_on(disk, run, send)

    def note(reason: str) -> None:
        agent.note_storage(reason)
        disk.noted.put_nowait(reason)

    reports.attend(note)
    async with asyncio.TaskGroup() as tasks:
        if full_before:
            tasks.create_task(disk.write())
            assert "No space left" in await disk.noted.get()
        reader.feed_data(encode(Job(trial=1, round=1, seed=1)))
        tasks.create_task(agent.serve(reader))
        if not full_before:
            assert "No space left" in await disk.noted.get()
        while not any(phase.trial == 1 for phase in phases(run)):
            await asyncio.sleep(0.01)
        disk.mended.set()
        await finished.wait()
        reader.feed_data(encode(Stop(reason="the run has ended")))
    return sent


def agent_on(disk: Disk, run: HandMadeRun, send: Callable[[Message], None]) -> Agent:
    async def start(request: object, log: Path) -> Trainer:
        await disk.write()
        return BriefTrainer()

    planner = Planner(0, run.config, run.paths, Memory())
    # Its clock passes, or the heartbeats would never let anything else have its turn.
    writer = HistoryWriter(run.paths, "replica-0000", SystemClock())
    return Agent(ReplicaContext(0, run.config, run.paths, writer, planner, 1, start, "float32", send))


def phases(run: HandMadeRun) -> list[PhaseBegan]:
    bodies = [record.body for record in HistoryReader(run.paths).read_new().records]
    return [body for body in bodies if isinstance(body, PhaseBegan)]


@pytest.mark.parametrize("full_before", [True, False], ids=["before the job", "while its ranks start"])
def test_a_trial_that_cannot_begin_is_in_the_phase_storage(tmp_path: Path, full_before: bool) -> None:
    run = HandMadeRun(tmp_path, {"replica.warm_up": False}).at(0).release(100)
    sent = asyncio.run(one_trial(run, full_before))
    found = [(phase.trial, phase.phase) for phase in phases(run)]
    before = [(None, "storage")] if full_before else [(1, "search")]
    assert found[:2] == [*before, (1, "storage")]
    if not full_before:
        assert found[2:4] == [(1, "search"), (1, "start")], "the phase that the wait has interrupted goes on"
    assert found.count((1, "storage")) == 1
    assert (1, "train") in found[2:]
    assert [bool(message.reason) for message in sent if isinstance(message, StorageWait)] == [True, False]
