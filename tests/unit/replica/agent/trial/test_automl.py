"""A trial that resumes an interrupted one."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import asdict

from aiperf.facts import BuiltFacts, EpochFacts
from aiperf.records.bodies import JobIssued, PhaseBegan, TrialBuilt, TrialEnded, TrialStarted
from aiperf.records.history_files import HistoryReader
from aiperf.rules.prediction import predicted_accuracy
from aiperf.run_directory.paths import earlier_checkpoint
from aiperf.wire.messages import (
    Begin,
    FromTrainer,
    Job,
    Message,
    Progress,
    TrainerDone,
    TrainerEpoch,
    TrainerPhase,
)
from replica.agent.trial.automl import Trial
from replica.agent.trial.context import ReplicaContext
from replica.agent.trial.standby import Standby
from replica.agent.trial.trainer import Trainer
from replica.search.knowledge import Knowledge
from replica.search.planner import Memory, Planner
from tests.support.hand_made import T0_MS, HandMadeRun

CORRECT = (100, 170, 200, 215, 225, 240)
"""Of 360 images, by epoch."""


class TrainerFrom(Trainer):
    """A trainer in process that reports `CORRECT` from an epoch on, as after a checkpoint."""

    built = BuiltFacts(
        architecture="a" * 16,
        compute={"float32": 2},
        devices=("cpu",),
        framework="none",
        source_hash="b" * 64,
        environment={"TF_X": "1"},
    )

    def __init__(self, first: int) -> None:
        self._first = first
        self.found: list[bytes] = []
        """The checkpoints that the training begins with."""

    async def warm_up(self, silence_s: float) -> AsyncIterator[TrainerPhase]:
        yield TrainerPhase(monotonic_ms=T0_MS, phase="build")

    async def begin(self, message: Begin) -> None:
        assert message.checkpoint_path is not None
        latest = Path(message.checkpoint_path)
        self.found = [file.read_bytes() for file in (latest, earlier_checkpoint(latest))]

    async def messages(self, silence_s: float) -> AsyncIterator[FromTrainer]:
        yield TrainerPhase(monotonic_ms=T0_MS, phase="train")
        for epoch in range(self._first, len(CORRECT) + 1):
            facts = EpochFacts(
                epoch=epoch,
                images_trained=1437,
                images_evaluated=360,
                correct=CORRECT[epoch - 1],
                loss=1.0,
                validation_loss=1.0,
                learning_rate=0.1,
            )
            yield TrainerEpoch(monotonic_ms=T0_MS, facts=facts)
        yield TrainerDone(monotonic_ms=T0_MS, early=False)

    def rename_log(self, log: Path) -> None:
        pass

    async def end(self) -> None:
        pass


@pytest.mark.parametrize("first", [1, 3, 5])
def test_a_resumed_trial_predicts_from_the_epochs_before_it_too(tmp_path: Path, first: int) -> None:
    run = HandMadeRun(tmp_path, {"search.initial_weights": "he"}).at(0).release(100)
    run.start_trial(1)
    for epoch in range(1, 4):
        # The second epoch of the interrupted trial is its best unless it is repeated.
        run.epoch(1, epoch, correct=300 if epoch == 2 and first > 2 else CORRECT[epoch - 1])
    run.fail_trial(1).start_trial(2, resumes=1).epoch(2, 4, correct=CORRECT[3]).fail_trial(2)
    # Trial 2 was lost while it took over: one checkpoint is still the first trial's.
    for file in run.paths.checkpoints_of(run.architecture.hash, 1):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"of trial 1, " + file.name.encode())
    run.paths.checkpoint(run.architecture.hash, 2).write_bytes(b"of trial 2")
    sent: list[Message] = []
    trainer = TrainerFrom(first)

    async def start(request: object, log: Path) -> Trainer:
        return trainer

    planner = Planner(0, run.config, run.paths, Memory())
    context = ReplicaContext(0, run.config, run.paths, run.replicas[0], planner, 1, start, "float32", sent.append)
    job = Job(trial=3, round=1, seed=1, resumes=2)
    asyncio.run(Trial(context, job, Standby(context)).run())
    before = earlier_checkpoint(run.paths.checkpoint(run.architecture.hash, 1))
    assert trainer.found == [b"of trial 2", b"of trial 1, " + before.name.encode()]
    accuracies = {epoch: correct / 360 for epoch, correct in enumerate(CORRECT, start=1)}
    if first > 2:
        accuracies[2] = 300 / 360
    bodies = [record.body for record in HistoryReader(run.paths).read_new().records]
    (ended,) = (body for body in bodies if isinstance(body, TrialEnded))
    own = [body for body in bodies if not isinstance(body, JobIssued) and getattr(body, "trial", 0) == 3]
    started, built = own[1:3]
    assert isinstance(started, TrialStarted)
    assert (started.trainer, started.input, started.dataset) == ("keras", "dataset", "digits")
    assert built == TrialBuilt(trial=3, **asdict(TrainerFrom.built))
    assert [type(body) for body in own].index(TrialBuilt) < own.index(PhaseBegan(replica=0, trial=3, phase="train"))
    assert ended.predicted_accuracy == predicted_accuracy(accuracies, run.config.max_epochs)
    reported = [message.accuracy for message in sent if isinstance(message, Progress)]
    assert reported[-1] == max(accuracies.values())
    knowledge = Knowledge(run.paths)
    knowledge.read()
    assert [trial.accuracy for trial in knowledge.ranked()] == [max(accuracies.values())]


@pytest.mark.parametrize(
    ("warm_up", "shares_devices", "alone", "expected"),
    [(True, True, False, True), (False, True, False, False), (True, False, False, False), (True, True, True, False)],
)
def test_ranks_warm_up_next_to_a_trial_unless_somebody_or_an_accelerator_says_no(
    warm_up: bool, shares_devices: bool, alone: bool, expected: bool, tmp_path: Path
) -> None:
    run = HandMadeRun(tmp_path, {"replica.warm_up": warm_up}).at(0).release(100)

    async def start(request: object, log: Path) -> Trainer:
        return TrainerFrom(1)

    planner = Planner(0, run.config, run.paths, Memory())
    context = ReplicaContext(
        0, run.config, run.paths, run.replicas[0], planner, 1, start, "float32", print, shares_devices
    )
    trial = Trial(context, Job(trial=1, round=1, seed=1, alone=alone), Standby(context))
    assert trial.warms_up_the_next() == expected
