"""A training of a scientific workload that resumes an interrupted one."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from aiperf.wire.messages import Begin, FromTrainer, Job, TrainerDone, TrainerPhase
from replica.agent.trial.context import ReplicaContext
from replica.agent.trial.science import WorkloadTrial
from replica.agent.trial.trainer import Trainer
from replica.search.planner import Memory, Planner
from tests.support.hand_made import T0_MS
from tests.support.science.hand_made import ScienceRun
from tests.support.trainings.science import make_science
from workloads.science import SCIENCE


class Begun(Trainer):
    """A trainer that keeps what it is asked to begin, and trains nothing."""

    def __init__(self, asked: list[Begin]) -> None:
        self._asked = asked

    async def warm_up(self, silence_s: float) -> AsyncIterator[TrainerPhase]:
        yield TrainerPhase(monotonic_ms=T0_MS, phase="build")

    async def begin(self, message: Begin) -> None:
        self._asked.append(message)
        if message.restore:
            assert Path(message.checkpoint_path or "").read_bytes() == b"state"

    async def messages(self, silence_s: float) -> AsyncIterator[FromTrainer]:
        yield TrainerDone(monotonic_ms=T0_MS, early=False)

    def rename_log(self, log: Path) -> None: ...

    async def end(self) -> None: ...


def test_the_ranks_are_told_how_many_began_the_training_and_find_its_checkpoint(tmp_path: Path) -> None:
    data = tmp_path / "data"
    make_science(data / SCIENCE.load("resnet-hep").size("rehearsal").data.folder, "hep")
    run = ScienceRun(tmp_path / "run", {"science.data_dir": str(data)}).ready(100, 0)
    run.issue(1, "resnet-hep").begin(1).built(1, devices=("cpu", "cpu")).measured(1, 1, accuracy=0.5).stop(1)
    # Trial 2 resumes the first one, and is lost before it takes its checkpoint over.
    run.issue(2, "resnet-hep", resumes=1).begin(2).stop(2)
    network = next(iter(SCIENCE.load("resnet-hep").size("rehearsal").networks.values()))()
    checkpoint = run.paths.checkpoint(network.hash, 1)
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    checkpoint.write_bytes(b"state")
    asked: list[Begin] = []

    async def start(request: object, log: Path) -> Trainer:
        return Begun(asked)

    planner = Planner(0, run.config, run.paths, Memory())
    context = ReplicaContext(
        0, run.config, run.paths, run.replicas[0], planner, 1, start, "float32", lambda message: None
    )
    for trial, resumes in ((3, 2), (4, None)):
        run.issue(trial, "resnet-hep", resumes=resumes)
        job = Job(trial=trial, round=1, seed=1, workload="resnet-hep", instance=0, resumes=resumes)
        asyncio.run(WorkloadTrial(context, job).run())
    assert [(begin.trial, begin.restore, begin.first_ranks) for begin in asked] == [(3, 1, 2), (4, 0, None)]
