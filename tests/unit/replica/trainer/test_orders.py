"""The orders that a trial gives its trainer: the recipe, the architecture, and when to resume."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from aiperf.run_directory.paths import RunPaths
from aiperf.wire.messages import (
    ArchitectureRequest,
    Begin,
    FromTrainer,
    Job,
    TrainerDone,
    TrainerPhase,
    TrainRequest,
)
from replica.agent.trial.automl import Trial
from replica.agent.trial.context import ReplicaContext
from replica.agent.trial.standby import Standby
from replica.agent.trial.trainer import Trainer
from replica.search.planner import Memory, Planner
from tests.support.hand_made import HandMadeRun


class RecordingTrainer(Trainer):
    """A trainer in process: it keeps its orders, and is done at once."""

    def __init__(self, paths: RunPaths) -> None:
        self.requests: list[TrainRequest] = []
        self.begins: list[tuple[Begin, list[Path]]] = []
        """Each with the checkpoints that were there."""
        self._paths = paths

    async def start(self, request: TrainRequest, log: Path) -> Trainer:
        self.requests.append(request)
        return self

    async def warm_up(self, silence_s: float) -> AsyncIterator[TrainerPhase]:
        yield TrainerPhase(monotonic_ms=1, phase="build")

    async def begin(self, message: Begin) -> None:
        self.begins.append((message, self._paths.checkpoints()))

    async def messages(self, silence_s: float) -> AsyncIterator[FromTrainer]:
        yield TrainerDone(monotonic_ms=2, early=False)

    def rename_log(self, log: Path) -> None:
        """Keep no log."""

    async def end(self) -> None:
        """End no process."""


@pytest.fixture
def run(tmp_path: Path) -> HandMadeRun:
    return HandMadeRun(tmp_path, {"replica.warm_up": False}).at(0).release(100)


def trained(run: HandMadeRun, job: Job) -> RecordingTrainer:
    trainer = RecordingTrainer(run.paths)
    planner = Planner(0, run.config, run.paths, Memory())
    context = ReplicaContext(
        0, run.config, run.paths, run.replicas[0], planner, 1, trainer.start, "float32", lambda message: None
    )
    asyncio.run(Trial(context, job, Standby(context)).run())
    return trainer


def plant(run: HandMadeRun, trial: int) -> Path:
    path = run.paths.checkpoint(run.architecture.hash, trial)
    path.write_bytes(json.dumps([0.9]).encode())
    return path


def test_the_recipe_of_the_configuration_reaches_the_trainer(tmp_path: Path) -> None:
    chosen: dict[str, Any] = {"learning_rate": 0.2, "momentum": 0.8, "label_smoothing": 0.3, "max_epochs": 70}
    overrides = {f"training.{name}": value for name, value in chosen.items()}
    run = HandMadeRun(tmp_path, {**overrides, "training.batch_size": 48}).at(0).release(100)
    (request,) = trained(run, Job(trial=1, round=1, seed=5)).requests
    assert {name: getattr(request, name) for name in chosen} == chosen
    assert (request.batch_size, request.seed) == (48, 5)


def test_a_request_names_the_hash_of_the_planned_architecture(run: HandMadeRun) -> None:
    (request,) = trained(run, Job(trial=1, round=1, seed=1)).requests
    assert isinstance(request, ArchitectureRequest)
    assert request.architecture_hash == run.architecture.hash
    assert request.architecture_path == str(run.paths.architecture(run.architecture.hash))


def test_a_fresh_trial_does_not_resume_from_a_planted_checkpoint_and_removes_it(run: HandMadeRun) -> None:
    planted = plant(run, 1)
    ((begin, checkpoints),) = trained(run, Job(trial=1, round=1, seed=1)).begins
    assert begin.checkpoint_path == str(planted)
    assert not begin.restore
    # If it stayed and the trial were interrupted early, the resumed trial would take it.
    assert checkpoints == []


def test_a_resumed_trial_resumes_from_the_checkpoint_of_the_interrupted_one(run: HandMadeRun) -> None:
    run.at(1).start_trial(1)
    run.epoch(1, 1)
    plant(run, 1)
    plant(run, 2).write_bytes(b"planted")
    ((begin, (checkpoint,)),) = trained(run, Job(trial=2, round=1, seed=1, resumes=1)).begins
    assert begin.restore == 1
    assert begin.checkpoint_path == str(checkpoint) == str(run.paths.checkpoint(run.architecture.hash, 2))


def test_a_trial_that_was_interrupted_before_its_first_checkpoint_starts_afresh(run: HandMadeRun) -> None:
    run.at(1).start_trial(1)
    plant(run, 2)
    ((begin, checkpoints),) = trained(run, Job(trial=2, round=1, seed=1, resumes=1)).begins
    assert not begin.restore
    assert checkpoints == []
