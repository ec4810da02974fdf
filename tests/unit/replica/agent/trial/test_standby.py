"""Ranks that warm up next to the current trial."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from aiperf.errors import TrialFailedError
from aiperf.wire.messages import (
    Begin,
    FromTrainer,
    Job,
    Phase,
    TrainerPhase,
    TrainRequest,
)
from primary.work.interrupted import RESUMABLE
from replica.agent.trial.automl import Trial
from replica.agent.trial.context import ReplicaContext
from replica.agent.trial.standby import Standby
from replica.agent.trial.trainer import Trainer
from replica.search.planner import Memory, Planner
from tests.support.hand_made import HandMadeRun


class RehearsedTrainer(Trainer):
    """A trainer in process: it warms up phase by phase as the test allows, and trains nothing."""

    def __init__(self, *phases: Phase, fails: bool = False) -> None:
        self.step = asyncio.Event()
        self.ended = False
        self._phases = phases
        self._fails = fails

    async def warm_up(self, silence_s: float) -> AsyncIterator[TrainerPhase]:
        for phase in self._phases:
            await self.step.wait()
            self.step.clear()
            yield TrainerPhase(monotonic_ms=1, phase=phase)
        if self._fails:
            raise TrialFailedError("build", "no room")

    async def begin(self, message: Begin) -> None:
        raise NotImplementedError

    def messages(self, silence_s: float) -> AsyncIterator[FromTrainer]:
        raise NotImplementedError

    def rename_log(self, log: Path) -> None:
        raise NotImplementedError

    async def end(self) -> None:
        self.ended = True


def replica_with(run: HandMadeRun, *trainers: RehearsedTrainer) -> ReplicaContext:
    coming = iter(trainers)

    async def start(request: TrainRequest, log: Path) -> Trainer:
        return next(coming)

    planner = Planner(0, run.config, run.paths, Memory())
    return ReplicaContext(0, run.config, run.paths, run.replicas[0], planner, 1, start, "float32", lambda message: None)


@pytest.fixture
def run(tmp_path: Path) -> HandMadeRun:
    return HandMadeRun(tmp_path).at(0).release(100)


FIRST = Job(trial=1, round=1, seed=1)


def test_phases_of_a_warm_up_reach_the_trial_that_takes_the_ranks_in_the_middle(run: HandMadeRun) -> None:
    async def scenario() -> tuple[Phase, list[Phase]]:
        trainer = RehearsedTrainer("start", "build", "train")
        ranks = await Standby(replica_with(run, trainer)).take(FIRST)
        trainer.step.set()
        while ranks.phase != "start" or trainer.step.is_set():
            await asyncio.sleep(0)
        taken_in = ranks.phase
        seen: list[Phase] = []
        trainer.step.set()
        async for message in ranks.coming_phases():
            seen.append(message.phase)
            trainer.step.set()
        assert ranks.ready
        await ranks.drop()
        assert trainer.ended
        return taken_in, seen

    assert asyncio.run(scenario()) == ("start", ["build", "train"])


def test_warm_ranks_are_taken_by_the_job_that_they_are_for_and_dropped_for_another(run: HandMadeRun) -> None:
    async def scenario() -> None:
        warm, fresh = RehearsedTrainer(), RehearsedTrainer()
        standby = Standby(replica_with(run, warm, fresh))
        await standby.warm_up(FIRST)
        other = replace(FIRST, seed=2)
        taken = await standby.take(other)
        assert warm.ended
        assert taken.trainer is fresh
        await taken.drop()

    async def fitting() -> None:
        warm = RehearsedTrainer()
        standby = Standby(replica_with(run, warm))
        await standby.warm_up(FIRST)
        taken = await standby.take(replace(FIRST, claim=1))
        assert taken.trainer is warm, "the number of its primary comes only with the job"
        standby.learn(taken)
        assert standby.lead_s == 0.0, "its clock stood still"
        await taken.drop()

    asyncio.run(scenario())
    asyncio.run(fitting())


def test_ranks_whose_warm_up_failed_are_not_taken(run: HandMadeRun, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        broken, fresh = RehearsedTrainer(fails=True), RehearsedTrainer()
        standby = Standby(replica_with(run, broken, fresh))
        await standby.warm_up(FIRST)
        assert "no ranks are warm for round 1: build: no room" in caplog.text
        taken = await standby.take(FIRST)
        assert broken.ended
        assert taken.trainer is fresh
        await taken.drop()

    asyncio.run(scenario())


class FullTrainer(RehearsedTrainer):
    """Ranks that run out of memory as they train, after something else has happened."""

    def __init__(self, meanwhile: Callable[[], Awaitable[None]]) -> None:
        super().__init__()
        self._meanwhile = meanwhile

    async def begin(self, message: Begin) -> None:
        pass

    def rename_log(self, log: Path) -> None:
        pass

    async def messages(self, silence_s: float) -> AsyncIterator[FromTrainer]:
        await self._meanwhile()
        raise TrialFailedError("out_of_memory", "tried to allocate 2 GiB")
        yield


@pytest.mark.parametrize(("ahead", "kind"), [(True, "crowded"), (False, "out_of_memory")])
def test_memory_that_is_short_next_to_warm_ranks_is_believed_only_without_them(
    run: HandMadeRun, ahead: bool, kind: str
) -> None:
    async def scenario() -> None:
        warm = RehearsedTrainer()

        async def meanwhile() -> None:
            if ahead:
                await standby.warm_up(replace(FIRST, trial=0, round=2))

        full = FullTrainer(meanwhile)
        context = replica_with(run, full, warm)
        standby = Standby(context)
        with pytest.raises(TrialFailedError, match="tried to allocate 2 GiB") as raised:
            await Trial(context, FIRST, standby).run()
        assert raised.value.kind == kind
        assert (full.ended, warm.ended) == (True, ahead)

    asyncio.run(scenario())
    assert ("crowded" in RESUMABLE, "out_of_memory" in RESUMABLE) == (True, False)


@pytest.mark.parametrize("alone", [True, False])
def test_no_ranks_warm_up_next_to_a_training_that_they_have_crowded_out(run: HandMadeRun, alone: bool) -> None:
    context = replica_with(run)
    trial = Trial(context, replace(FIRST, resumes=7, alone=alone), Standby(context))
    assert trial.warms_up_the_next() != alone
