"""The reports of a trial to the primary."""

from pathlib import Path

from aiperf.facts import EpochFacts, ExchangeFacts, ProgressFacts, ServerFacts
from aiperf.records.reading import read_ledger
from aiperf.wire.messages import (
    Job,
    Message,
    Progress,
    TrainerEpoch,
    TrainerExchange,
    TrainerProgress,
)
from replica.agent.trial.context import ReplicaContext
from replica.agent.trial.trainer import Trainer
from replica.agent.trial.trial_log import TrialLog
from replica.search.planner import Memory, Planner
from tests.support.hand_made import T0_MS, HandMadeRun


async def no_trainer(request: object, log: Path) -> Trainer:
    raise NotImplementedError


def started(run: HandMadeRun, sent: list[Message]) -> TrialLog:
    """The log of trial 1, which trains."""
    planner = Planner(0, run.config, run.paths, Memory())
    context = ReplicaContext(0, run.config, run.paths, run.replicas[0], planner, 1, no_trainer, "float32", sent.append)
    job = Job(trial=1, round=1, seed=1)
    log = TrialLog(context, job)
    log.start(planner.plan(job), None)
    log.begin_phase("train")
    return log


def test_exchanges_are_recorded_by_epoch_with_their_group_or_server(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(100)
    log = started(run, [])
    groups = tuple(
        ExchangeFacts(
            epoch=1,
            group=group,
            updates=4,
            images=128,
            staleness=(1, 2, 0, 1),
            computing_s=1.0,
            group_s=0.5,
            waiting_s=0.25,
            bytes_exchanged=4096,
        )
        for group in (0, 1)
    )
    server = ServerFacts(epoch=1, server=0, updates=8, busy_share=0.5)
    log.exchange(TrainerExchange(monotonic_ms=T0_MS, groups=groups, servers=(server,)))
    trial = read_ledger(run.paths).trials[1]
    assert {key: body.images for key, body in trial.exchanges.items()} == {(1, 0): 128, (1, 1): 128}
    assert trial.exchanges[1, 1].staleness == (1, 2, 0, 1)
    assert trial.served[1, 0].busy_share == 0.5


def test_a_new_phase_does_not_take_back_the_operations_of_an_open_epoch(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(100)
    sent: list[Message] = []
    log = started(run, sent)
    progress = ProgressFacts(epoch=1, images_trained=700, images_evaluated=0)
    log.progress(TrainerProgress(monotonic_ms=T0_MS, facts=progress))
    log.begin_phase("evaluate")
    facts = EpochFacts(
        epoch=1,
        images_trained=1437,
        images_evaluated=360,
        correct=300,
        loss=1.0,
        validation_loss=1.0,
        learning_rate=0.1,
    )
    log.epoch(TrainerEpoch(monotonic_ms=T0_MS, facts=facts))
    log.begin_phase("train")
    operations = [message.operations for message in sent if isinstance(message, Progress)]
    assert operations == sorted(operations)
    assert 0 < operations[-3] < operations[-1]
