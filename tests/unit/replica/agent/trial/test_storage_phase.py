"""The phase of a trial that waits for its storage."""

import asyncio
import errno
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from aiperf.clock import SystemClock
from aiperf.errors import TrialFailedError
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
    TrainerWaits,
)
from replica.agent.agent import Agent
from replica.agent.storage import StorageReports
from replica.agent.trial.context import ReplicaContext
from replica.agent.trial.trainer import StartTrainer, Trainer
from replica.search.planner import Memory, Planner
from tests.support.hand_made import T0_MS, HandMadeRun


class BriefTrainer(Trainer):
    """A trainer in process that has nothing to train, and fails or ends after these reports."""

    def __init__(self, *reports: FromTrainer, fails: bool = False) -> None:
        self._reports = reports
        self._fails = fails

    async def warm_up(self, silence_s: float) -> AsyncIterator[TrainerPhase]:
        yield TrainerPhase(monotonic_ms=T0_MS, phase="build")

    async def begin(self, message: Begin) -> None:
        pass

    async def messages(self, silence_s: float) -> AsyncIterator[FromTrainer]:
        yield TrainerPhase(monotonic_ms=T0_MS, phase="train")
        for report in self._reports:
            yield report
        if self._fails:
            raise TrialFailedError("crash", "the trainer was killed")
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


class Pipe:
    """The agent's way to its primary: what it has sent, and if that is the end of its job."""

    def __init__(self) -> None:
        self.sent = list[Message]()
        self.finished = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def send(self, message: Message) -> None:
        self.sent.append(message)
        if isinstance(message, Finished):
            self._loop.call_soon_threadsafe(self.finished.set)


async def one_trial(run: HandMadeRun, full_before: bool) -> list[Message]:
    """Have an agent do a job whose ranks start when a full disk takes their log; what it sends."""
    pipe, reader = Pipe(), asyncio.StreamReader()
    reports = StorageReports(pipe.send)
    disk = Disk(reports)

    async def start(request: object, log: Path) -> Trainer:
        await disk.write()
        return BriefTrainer()

    agent = agent_of(run, start, reports, pipe)

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
        await pipe.finished.wait()
        reader.feed_data(encode(Stop(reason="the run has ended")))
    return pipe.sent


def agent_of(run: HandMadeRun, start: StartTrainer, reports: StorageReports, pipe: Pipe) -> Agent:
    planner = Planner(0, run.config, run.paths, Memory())
    # Its clock passes, or the heartbeats would never let anything else have its turn.
    writer = HistoryWriter(run.paths, "replica-0000", SystemClock())
    return Agent(
        ReplicaContext(
            0, run.config, run.paths, writer, planner, 1, start, "float32", pipe.send, ranks_wait=reports.of("ranks")
        )
    )


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


FULL = TrainerWaits(monotonic_ms=T0_MS, reason="weights: No space left on device")
MENDED = TrainerWaits(monotonic_ms=T0_MS, reason="")


async def one_trial_of(run: HandMadeRun, trainer: Trainer) -> list[Message]:
    """Have an agent do a job with these ranks; what it sends."""
    pipe, reader = Pipe(), asyncio.StreamReader()
    reports = StorageReports(pipe.send)

    async def start(request: object, log: Path) -> Trainer:
        return trainer

    agent = agent_of(run, start, reports, pipe)
    reports.attend(agent.note_storage)
    reader.feed_data(encode(Job(trial=1, round=1, seed=1)))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(agent.serve(reader))
        await pipe.finished.wait()
        reader.feed_data(encode(Stop(reason="the run has ended")))
    return pipe.sent


def test_a_wait_of_the_ranks_is_a_phase_and_is_told(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path, {"replica.warm_up": False}).at(0).release(100)
    evaluate = TrainerPhase(monotonic_ms=T0_MS, phase="evaluate")
    sent = asyncio.run(one_trial_of(run, BriefTrainer(evaluate, FULL, MENDED)))
    found = [phase.phase for phase in phases(run) if phase.trial == 1]
    assert found[found.index("train") :] == ["train", "evaluate", "storage", "evaluate", "idle"]
    assert [message.reason for message in sent if isinstance(message, StorageWait)] == [FULL.reason, ""]


def test_ranks_that_die_while_they_wait_do_not_wait_any_more(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path, {"replica.warm_up": False}).at(0).release(100)
    sent = asyncio.run(one_trial_of(run, BriefTrainer(FULL, fails=True)))
    assert [message.reason for message in sent if isinstance(message, StorageWait)] == [FULL.reason, ""]
    assert phases(run)[-1].phase == "idle"
