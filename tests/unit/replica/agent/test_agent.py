"""The end of an agent in the middle of a trial."""

import argparse
import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from aiperf import host
from aiperf.clock import SystemClock
from aiperf.errors import EnvironmentNotReadyError
from aiperf.records.bodies import TrialEnded
from aiperf.records.chain import hash_of
from aiperf.records.history_files import HistoryReader, HistoryWriter
from aiperf.wire.lines import encode
from aiperf.wire.messages import (
    Begin,
    Closing,
    FromTrainer,
    Job,
    Message,
    Ready,
    Stop,
    TrainerPhase,
)
from replica.agent.agent import Agent, make_context
from replica.agent.storage import StorageReports
from replica.agent.trial.context import ReplicaContext
from replica.agent.trial.trainer import Trainer
from replica.measure.micro.node_job import MicroReport
from replica.search.planner import Memory, Planner
from tests.support.hand_made import HandMadeRun


class EndlessTrainer(Trainer):
    """A trainer in process that trains for ever; it notes what is recorded when it has to end."""

    def __init__(self, run: HandMadeRun, hangs: bool) -> None:
        self.training = asyncio.Event()
        self.ending = asyncio.Event()
        self.recorded: list[object] = []
        self._run = run
        self._hangs = hangs

    async def warm_up(self, silence_s: float) -> AsyncIterator[TrainerPhase]:
        yield TrainerPhase(monotonic_ms=0, phase="build")

    async def begin(self, message: Begin) -> None:
        pass

    async def messages(self, silence_s: float) -> AsyncIterator[FromTrainer]:
        yield TrainerPhase(monotonic_ms=0, phase="train")
        self.training.set()
        await asyncio.Event().wait()

    def rename_log(self, log: Path) -> None:
        pass

    async def end(self) -> None:
        records = HistoryReader(self._run.paths).read_new().records
        self.recorded = [record.body for record in records if isinstance(record.body, TrialEnded)]
        self.ending.set()
        if self._hangs:
            await asyncio.Event().wait()


def last_record(run: HandMadeRun, writer: str) -> tuple[int, str]:
    lines = run.paths.history_file(writer).read_bytes().splitlines()
    return len(lines) - 1, hash_of(lines[-1])


@pytest.mark.parametrize("ranks_hang", [False, True])
def test_a_stopped_trial_is_recorded_before_its_ranks_are_ended(tmp_path: Path, ranks_hang: bool) -> None:
    """They may take longer to end than the primary waits before it terminates the agent."""
    run = HandMadeRun(tmp_path, {"replica.warm_up": False}).at(0).release(100)
    sent = list[Message]()

    async def scenario() -> list[object]:
        trainer = EndlessTrainer(run, ranks_hang)

        async def start(request: object, log: Path) -> Trainer:
            return trainer

        planner = Planner(0, run.config, run.paths, Memory())
        # Its clock passes, or the heartbeats would never let anything else have its turn.
        writer = HistoryWriter(run.paths, "replica-0000", SystemClock())
        context = ReplicaContext(0, run.config, run.paths, writer, planner, 1, start, "float32", sent.append)
        reader = asyncio.StreamReader()
        reader.feed_data(encode(Job(trial=1, round=1, seed=1)))
        serving = asyncio.create_task(Agent(context).serve(reader))
        await trainer.training.wait()
        reader.feed_data(encode(Stop(reason="the run has ended")))
        await trainer.ending.wait()
        if ranks_hang:
            serving.cancel()  # as SIGTERM does
        await asyncio.gather(serving, return_exceptions=True)
        return trainer.recorded

    stopped = [TrialEnded(trial=1, reason="stopped")]
    assert asyncio.run(scenario()) == stopped
    ends = [r.body for r in HistoryReader(run.paths).read_new().records if isinstance(r.body, TrialEnded)]
    assert ends == stopped, "once"
    sequence, digest = last_record(run, "replica-0000-2")
    assert sent[-1] == Closing(trial=1, sequence=sequence, digest=digest)


@pytest.mark.parametrize("stopped", [False, True])
def test_a_replica_is_ready_when_its_node_is_measured(tmp_path: Path, stopped: bool) -> None:
    """The suite is not in the run's time: nothing is released before the replicas are ready."""
    run = HandMadeRun(tmp_path).at(0).release(100)
    sent = list[Message]()

    async def scenario() -> None:
        measuring, may_end = asyncio.Event(), asyncio.Event()

        async def measure() -> MicroReport:
            measuring.set()
            await may_end.wait()
            return MicroReport(digest="d" * 64, problem="noisy")

        async def start(request: object, log: Path) -> Trainer:
            raise AssertionError(request)

        planner = Planner(0, run.config, run.paths, Memory())
        writer = HistoryWriter(run.paths, "replica-0000", SystemClock())
        context = ReplicaContext(
            0, run.config, run.paths, writer, planner, 1, start, "float32", sent.append, measure_node=measure
        )
        reader = asyncio.StreamReader()
        serving = asyncio.create_task(Agent(context).serve(reader))
        await measuring.wait()
        assert sent == []
        if not stopped:
            may_end.set()
            while not sent:
                await asyncio.sleep(0)
        reader.feed_data(encode(Stop(reason="the run has ended")))
        await serving

    asyncio.run(scenario())
    ready = [message for message in sent if isinstance(message, Ready)]
    assert [(message.measured, message.unmeasured) for message in ready] == [("d" * 64, "noisy")] * (not stopped)


@pytest.mark.parametrize("word", [True, False])
def test_an_agent_knows_whether_its_primary_has_gone_without_a_word(tmp_path: Path, word: bool) -> None:
    run = HandMadeRun(tmp_path, {"replica.warm_up": False})

    async def scenario() -> bool:
        planner = Planner(0, run.config, run.paths, Memory())
        writer = HistoryWriter(run.paths, "replica-0000", SystemClock())

        async def start(request: object, log: Path) -> Trainer:
            raise AssertionError

        context = ReplicaContext(0, run.config, run.paths, writer, planner, 1, start, "float32", list[Message]().append)
        agent, reader = Agent(context), asyncio.StreamReader()
        if word:
            reader.feed_data(encode(Stop(reason="the run has ended")))
        reader.feed_eof()
        await agent.serve(reader)
        return agent.orphaned

    assert asyncio.run(scenario()) is not word


@pytest.mark.parametrize(("trainer", "limited"), [("keras", True), ("simulated", False)])
def test_only_trainers_that_use_memory_are_limited_by_it(
    trainer: str, limited: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host.Host, "memory", lambda _: host.Memory(2**20, 2**20, 2**20))
    run = HandMadeRun(tmp_path, {"training.trainer": trainer})
    arguments = argparse.Namespace(replica=0, hosts="", share=1, measure=False)
    writer = HistoryWriter(run.paths, "replica-0000", SystemClock())
    with pytest.raises(EnvironmentNotReadyError, match="too large") if limited else contextlib.nullcontext():
        make_context(arguments, run.config, run.paths, writer, StorageReports(print), {})
