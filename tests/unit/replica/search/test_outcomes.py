"""Outcomes that follow the history are those that are computed from all of it."""

import random
from pathlib import Path

import pytest

from aiperf.records.bodies import (
    AnyBody,
    EpochCompleted,
    ReplicaLost,
    ReplicaReady,
    RunResumed,
    TrialEnded,
    TrialFailed,
    TrialStarted,
)
from aiperf.records.ledger import Ledger
from aiperf.records.lineage import best_quality
from aiperf.records.record import Record
from aiperf.run_directory.architectures import ArchitectureStore
from aiperf.run_directory.paths import RunPaths
from replica.search import outcomes
from replica.search.demo.architectures import random_history
from replica.search.knowledge import MOST_WHOLE, Knowledge
from replica.search.observations import Observed
from replica.search.outcomes import Outcomes
from replica.search.outlines import Outline
from search_space.limits import growth_limits
from search_space.resnet import resnet
from tests.support.hand_made import HandMadeRun

INITIAL = resnet(50, 32, 10)
POOL = random_history(INITIAL, growth_limits(INITIAL, 4.0, None, 64, 4), 12, random.Random(1))


def started(trial: int, replica: int, resumes: int | None) -> TrialStarted:
    return TrialStarted(
        trial=trial,
        replica=replica,
        round=1,
        architecture=f"{trial if resumes is None else resumes:016x}"[:16],
        parent=None,
        hyperparameters={"batch_size": trial % 5},
        epochs=3,
        point=trial % 3,
        resumes=resumes,
    )


def completed(trial: int, epoch: int, correct: int) -> EpochCompleted:
    return EpochCompleted(
        trial=trial,
        epoch=epoch,
        images_trained=10,
        images_evaluated=100,
        correct=correct,
        loss=1.0,
        validation_loss=1.0,
        learning_rate=0.1,
    )


def bodies(rng: random.Random) -> list[AnyBody]:
    """Records of 40 trials of 4 replicas with failures, losses and resumptions, in no order."""
    found: list[AnyBody] = []
    for trial in range(1, 41):
        resumes = trial - 4 if trial > 4 and rng.random() < 0.3 else None
        found.append(started(trial, trial % 4, resumes))
        found += [completed(trial, epoch, rng.randrange(100)) for epoch in range(1, rng.randrange(1, 5))]
        kind = rng.random()
        if kind < 0.5:
            predicted = rng.choice([None, 0.5])
            found.append(TrialEnded(trial=trial, reason="completed", predicted_accuracy=predicted))
        elif kind < 0.6:
            found.append(TrialEnded(trial=trial, reason="stopped"))
        elif kind < 0.8:
            found.append(
                TrialFailed(trial=trial, replica=trial % 4, kind=rng.choice(["out_of_memory", "crash"]), reason="")
            )
    found += [ReplicaLost(replica=replica, reason="") for replica in range(3)]
    found.append(ReplicaReady(replica=1, writer="w", accelerators=1, clock_offset_ms=700))
    found.append(RunResumed(new_clock=False))
    rng.shuffle(found)
    return found


def outlined(architecture: str) -> Outline:
    return Outline(architecture, (), (), lambda name: INITIAL)


@pytest.mark.parametrize("seed", range(12))
def test_they_are_the_same_however_the_records_came(seed: int) -> None:
    rng = random.Random(seed)
    records = [Record("w", n, rng.randrange(1000), 0, body) for n, body in enumerate(bodies(rng))]
    ledger = Ledger()
    grown = Outcomes(ledger)
    kept = Observed(grown, outlined)
    while records:
        part, records = records[: (size := rng.randrange(1, 30))], records[size:]
        ledger.add(part)
        grown.note(part)
        grown.renew()
        at_once = Outcomes(ledger)
        at_once.note(Record("w", 0, 0, 0, entry.started) for entry in ledger.trials.values() if entry.started)
        at_once.renew()
        assert list(grown.in_order()) == list(at_once.in_order())
        assert grown.ranking == at_once.ranking
        assert (grown.trainings, grown.points) == (at_once.trainings, at_once.points)
        assert list(grown.unfinished()) == list(at_once.unfinished())
        assert grown.by_architecture == at_once.by_architecture
        renewed, observed = kept.observations(), Observed(at_once, outlined).observations()
        assert renewed == observed
        assert renewed.tried == observed.tried == observed.hashes
        standing = kept.summary()
        assert standing.completed == len(observed.completed)
        best = max(observed.measured, key=lambda observation: observation.accuracy, default=None)
        assert standing.best == (None if best is None else (best.architecture.hash, best.accuracy))
    assert [o.accuracy for o in grown.in_order()] == [best_quality(ledger, trial) for trial in sorted(grown.all)]
    assert [o.ended_badly for o in grown.in_order()] == [
        entry.failed is not None or ledger.died_ms(entry) is not None for _, entry in sorted(ledger.trials.items())
    ]
    assert grown.ranking == sorted(grown.ranking, key=lambda ranked: (-ranked.accuracy, ranked.trial))


def test_a_new_record_costs_the_trials_that_it_concerns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(1000)
    knowledge = Knowledge(run.paths)
    for trial in range(1, 30):
        run.at(trial).start_trial(trial).epoch(trial, 1).end_trial(trial)
    knowledge.read()
    assert len(knowledge.ranked()) == 29
    seen: list[int] = []

    def noted(ledger: Ledger, trial: int) -> float | None:
        seen.append(trial)
        return best_quality(ledger, trial)

    monkeypatch.setattr(outcomes, "best_quality", noted)
    run.at(40).start_trial(30).epoch(30, 1).end_trial(30)
    knowledge.read()
    assert (len(knowledge.ranked()), len(knowledge.trainings()), knowledge.observations().failed) == (30, 1, ())
    assert seen == [30]


def test_evidence_is_the_same_object_until_something_changes(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path).at(0).release(1000)
    run.at(1).start_trial(1).epoch(1, 1).end_trial(1)
    knowledge = Knowledge(run.paths)
    knowledge.read()
    first = knowledge.observations()
    knowledge.read()
    assert knowledge.observations() is first
    run.at(2).start_trial(2)
    knowledge.read()
    assert knowledge.observations() != first


def test_architectures_are_not_kept_whole(tmp_path: Path) -> None:
    store = ArchitectureStore(RunPaths(tmp_path), most=3)
    for architecture in POOL:
        store.save(architecture)
    assert [store.load(architecture.hash) for architecture in POOL] == POOL
    kept = store.load(POOL[0].hash)
    assert kept is store.load(POOL[0].hash)
    for architecture in POOL[1:4]:
        store.load(architecture.hash)
    assert kept is not store.load(POOL[0].hash), "three others were asked for since"
    assert MOST_WHOLE <= 64
