"""The reports of a trial to the primary."""

from __future__ import annotations

from pathlib import Path

from aiperf.facts import EpochFacts, ProgressFacts
from aiperf.messages import (
    Job,
    Message,
    Progress,
    TrainerEpoch,
    TrainerProgress,
)
from replica.search.planner import Memory, Planner
from replica.trial.context import ReplicaContext
from replica.trial.trainer import Trainer
from replica.trial.trial_log import TrialLog
from testing.hand_made import T0_MS, HandMadeRun


async def no_trainer(request: object, log: Path) -> Trainer:
    raise NotImplementedError


def test_a_new_phase_does_not_take_back_the_operations_of_an_open_epoch(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(100)
    sent: list[Message] = []
    planner = Planner(0, run.config, run.paths, Memory())
    context = ReplicaContext(0, run.config, run.paths, run.replicas[0], planner, 1, no_trainer, "float32", sent.append)
    job = Job(trial=1, round=1, seed=1)
    log = TrialLog(context, job)
    log.start(planner.plan(job), None)
    log.begin_phase("train")
    progress = ProgressFacts(epoch=1, images_trained=700, images_evaluated=0)
    log.progress(TrainerProgress(monotonic_ms=T0_MS, facts=progress))
    log.begin_phase("evaluate")
    facts = EpochFacts(
        epoch=1, images_trained=1437, images_evaluated=360, correct=300,
        loss=1.0, validation_loss=1.0, learning_rate=0.1,
    )  # fmt: skip
    log.epoch(TrainerEpoch(monotonic_ms=T0_MS, facts=facts))
    log.begin_phase("train")
    operations = [message.operations for message in sent if isinstance(message, Progress)]
    assert operations == sorted(operations)
    assert 0 < operations[-3] < operations[-1]
