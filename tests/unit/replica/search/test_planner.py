"""The planner: the next training of a replica, candidates proposed ahead, weights kept."""

import json
import math
import random
import subprocess
import sys
from pathlib import Path

import pytest

from aiperf.errors import EXIT_ENVIRONMENT, ArchitectureError, EnvironmentNotReadyError
from aiperf.network.architecture import Architecture
from aiperf.records.bodies import JobIssued
from aiperf.run_directory.architectures import ArchitectureStore
from aiperf.run_directory.paths import RunPaths
from aiperf.wire.messages import Job
from replica.search.demo.architectures import random_history
from replica.search.knowledge import Knowledge
from replica.search.observations import Summary
from replica.search.planner import Ahead, Memory, Planner
from replica.search.strategies.contract import Proposal
from search_space.limits import growth_limits, training_memory
from search_space.morphisms import Deepen, apply_all, morph_from_data
from search_space.resnet import resnet
from tests.support.hand_made import HandMadeRun

INITIAL = resnet(50, 32, 10)
POOL = random_history(INITIAL, growth_limits(INITIAL, 4.0, None, 64, 4), 12, random.Random(1))


@pytest.fixture
def run(tmp_path: Path) -> HandMadeRun:
    return HandMadeRun(tmp_path, {"search.initial_weights": "inherit", "search.kept_weights": 2}).at(0).release(100)


def planner(run: HandMadeRun) -> Planner:
    return Planner(0, run.config, run.paths, Memory())


def planned(run: HandMadeRun, trial: int, round_number: int) -> Proposal:
    return planner(run).plan(Job(trial=trial, round=round_number, seed=1)).proposal


def trial(run: HandMadeRun, number: int, architecture: Architecture, correct: int, end: bool = True) -> None:
    ArchitectureStore(run.paths).save(architecture)
    run.architecture = architecture
    run.at(number).start_trial(number).epoch(number, 1, correct=correct)
    if end:
        run.end_trial(number)


def test_the_first_trial_is_the_initial_architecture_and_no_other_is(run: HandMadeRun) -> None:
    assert planned(run, 1, 1).architecture == INITIAL
    second = planned(run, 2, 1)
    assert second.parent == INITIAL.hash
    assert second.architecture.hash != INITIAL.hash
    assert apply_all(INITIAL, second.morphs) == second.architecture


def test_the_initial_architecture_is_planned_until_it_has_trained(run: HandMadeRun) -> None:
    run.start_trial(1)
    assert planned(run, 2, 1).architecture != INITIAL, "it is in progress"
    run.fail_trial(1)
    trial(run, 2, POOL[3], 250)
    plans = planner(run)
    ahead = plans.plan(Job(trial=0, round=3, seed=1))
    assert ahead.proposal.architecture != INITIAL
    job = Job(trial=3, round=3, seed=1)
    assert not plans.still_new(ahead, job), "it was planned before trial 3 was to train another"
    plan = plans.plan(job)
    assert plan.proposal == Proposal(INITIAL, None)
    assert plans.still_new(plan, job)
    trial(run, 3, INITIAL, 200)
    assert not plans.still_new(plan, job)
    assert planned(run, 4, 4).architecture != INITIAL
    assert plans.still_new(ahead, Job(trial=4, round=3, seed=1))


def test_one_replica_at_a_time_tries_the_initial_architecture_again(run: HandMadeRun) -> None:
    run.start_trial(1).fail_trial(1)
    for number in (2, 3):
        run.primary.append(JobIssued(trial=number, replica=number - 2, round=1, seed=1))
    assert planned(run, 2, 1).architecture == INITIAL
    assert planned(run, 3, 1).architecture != INITIAL, "trial 2 may choose it"
    run.lose(0)
    assert planned(run, 3, 1).architecture == INITIAL, "trial 2 cannot start any more"
    run.primary.append(JobIssued(trial=4, replica=0, round=1, seed=1))
    assert planned(run, 4, 1).architecture != INITIAL, "trial 3 may choose it"


def test_a_candidate_proposed_ahead_is_used_and_refreshed_when_the_history_moves_on(run: HandMadeRun) -> None:
    trial(run, 1, INITIAL, 200, end=False)
    plans = planner(run)
    plans.propose_ahead(2)
    file = run.paths.candidate(0, 2)
    first = file.read_bytes()
    file.write_bytes(b"untouched")
    plans.propose_ahead(2)
    assert file.read_bytes() == b"untouched", "nothing was recorded since"
    trial(run, 2, POOL[3], 250)
    plans.propose_ahead(2)
    ahead = json.loads(file.read_bytes())
    assert ahead["hash"] != json.loads(first)["hash"] or ahead["parent"] != json.loads(first)["parent"]
    run.at(5).end_trial(1)
    assert planned(run, 3, 2).architecture.hash == ahead["hash"]


def test_a_replica_has_one_candidate_on_disk_however_many_rounds_pass(run: HandMadeRun) -> None:
    trial(run, 1, INITIAL, 200)
    plans = planner(run)
    for number in range(2, 6):
        plans.propose_ahead(number)
        assert [file.name for file in run.paths.candidates.iterdir()] == [run.paths.candidate(0, number).name]


def test_a_candidate_is_refreshed_when_a_running_trial_gets_its_accuracy(run: HandMadeRun) -> None:
    trial(run, 1, INITIAL, 200)
    trial(run, 2, POOL[3], 250, end=False)
    plans = planner(run)
    plans.propose_ahead(2)
    file = run.paths.candidate(0, 2)
    file.write_bytes(b"stale")
    run.at(5).end_trial(2)
    plans.propose_ahead(2)
    assert file.read_bytes() != b"stale", "the same architectures, but one more result"


def test_a_candidate_is_replaced_when_the_best_changed_or_the_results_grew_by_a_twentieth() -> None:
    plans, known = Ahead(), Summary(1, 40, ("a", 0.5))
    proposed = plans.proposed(known, 1.0)
    assert plans.is_due(known, 0.0, last=False), "the first one"
    assert not proposed.is_due(known, math.inf, last=True), "nothing is new"
    one_more = Summary(2, 41, ("a", 0.5))
    assert not proposed.is_due(one_more, math.inf, last=False), "less than a twentieth"
    assert proposed.is_due(one_more, 0.0, last=True), "the last one before it is needed"
    grown = Summary(2, 43, ("a", 0.5))
    assert proposed.is_due(grown, 1.0, last=False)
    assert not proposed.is_due(grown, 0.9, last=False), "all of the round took more than its share"
    assert proposed.is_due(Summary(2, 41, ("b", 0.99)), 1.0, last=False)


def test_a_trial_that_starts_is_taken_into_account_by_the_last_candidate(run: HandMadeRun) -> None:
    trial(run, 1, INITIAL, 200)
    plans = planner(run)
    plans.propose_ahead(2)
    file = run.paths.candidate(0, 2)
    file.write_bytes(b"untouched")
    trial(run, 2, POOL[3], 250, end=False)
    plans.propose_ahead(2)
    assert file.read_bytes() == b"untouched"
    plans.propose_ahead(2, last=True)
    assert file.read_bytes() != b"untouched"
    file.write_bytes(b"untouched")
    plans.propose_ahead(2, last=True)
    assert file.read_bytes() == b"untouched", "nothing was recorded since"
    plans.propose_ahead(3)
    assert run.paths.candidate(0, 3).exists(), "another round"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"hash": "x", "parent": "../..", "morphs": []}'])
def test_a_damaged_candidate_is_not_used(run: HandMadeRun, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    trial(run, 1, INITIAL, 200)
    run.paths.candidate(0, 2).write_bytes(content)
    assert planned(run, 2, 2).architecture.hash != INITIAL.hash
    assert "is not used: " in caplog.text


def test_a_candidate_that_another_replica_trains_in_the_meantime_is_not_used(run: HandMadeRun) -> None:
    trial(run, 1, INITIAL, 200, end=False)
    planner(run).propose_ahead(2)
    taken = json.loads(run.paths.candidate(0, 2).read_bytes())
    child = apply_all(INITIAL, [morph_from_data(data) for data in taken["morphs"]])
    trial(run, 2, child, 200, end=False)
    assert planned(run, 3, 2).architecture.hash != child.hash


def test_a_plan_is_no_longer_new_once_another_replica_trains_the_same(run: HandMadeRun) -> None:
    plans = planner(run)
    job = Job(trial=1, round=1, seed=1)
    plan = plans.plan(job)
    assert plans.still_new(plan, job)
    run.hyperparameters = plan.hyperparameters
    trial(run, 1, INITIAL, 200, end=False)
    assert not plans.still_new(plan, job)


def test_a_repeat_that_was_planned_because_nothing_new_was_left_stays_good(run: HandMadeRun) -> None:
    # ResNet-50 has no kernels to tune, so the digits space holds one training per batch size.
    ArchitectureStore(run.paths).save(INITIAL)
    run.architecture = INITIAL
    for number, batch in enumerate((32, 48, 64, 96), start=1):
        hyperparameters = planner(run).plan(Job(trial=1, round=1, seed=1)).hyperparameters
        run.hyperparameters = {**hyperparameters, "batch_size": batch}
        trial(run, number, INITIAL, 200)
    plans = planner(run)
    job = Job(trial=5, round=1, point=1, base=1, seed=1)
    plan = plans.plan(job)
    assert plan.repeats
    assert plans.still_new(plan, job)


@pytest.mark.parametrize("strategy", ["bayesian", "random"])
def test_the_best_architecture_is_trained_again_if_nothing_is_left_to_grow(tmp_path: Path, strategy: str) -> None:
    run = HandMadeRun(tmp_path, {"search.max_growth": 1.000001, "search.strategy": strategy}).at(0).release(100)
    run.hyperparameters = planner(run).plan(Job(trial=1, round=1, seed=1)).hyperparameters
    trial(run, 1, INITIAL, 200)
    run.hyperparameters = {**run.hyperparameters, "batch_size": 32}
    trial(run, 2, INITIAL, 250)
    plans, job = planner(run), Job(trial=3, round=3, seed=1)
    plan = plans.plan(job)
    assert plan.proposal == Proposal(INITIAL, None)
    assert plan.hyperparameters["batch_size"] == 32, "of the better one"
    assert plan.repeats
    assert plans.still_new(plan, job)


def test_planners_that_share_their_knowledge_plan_as_those_that_do_not(run: HandMadeRun) -> None:
    knowledge = Knowledge(run.paths)
    shared = [Planner(replica, run.config, run.paths, Memory(), knowledge) for replica in (0, 1)]
    trial(run, 1, INITIAL, 200)
    for replica, plans in enumerate(shared):
        job = Job(trial=replica + 2, round=2, seed=1)
        plan = plans.plan(job)
        assert plan == Planner(replica, run.config, run.paths, Memory()).plan(job)
        run.hyperparameters = plan.hyperparameters
        trial(run, job.trial, plan.proposal.architecture, 210, end=False)
    assert len(knowledge.trainings()) == 2, "the second trial is recorded, and read by the next look at it"
    knowledge.read()
    assert len(knowledge.trainings()) == 3


def test_weights_of_the_best_trials_are_kept_and_found(run: HandMadeRun) -> None:
    for number, (architecture, correct) in enumerate(zip(POOL[:4], (100, 300, 200, 250), strict=True), start=1):
        trial(run, number, architecture, correct)
        run.paths.weights(architecture.hash, number).write_bytes(b"weights")
    planner(run).prune_weights()
    kept = sorted(path.name for path in run.paths.models.glob("*/weights-*.npz"))
    assert kept == ["weights-000002.npz", "weights-000004.npz"]
    plans = planner(run)
    proposal = plans.plan(Job(trial=5, round=2, seed=1)).proposal
    found = plans.weights_for(proposal)
    assert (found.architecture if found else None) == (
        proposal.parent if proposal.parent in (POOL[1].hash, POOL[3].hash) else None
    )


def test_an_initial_architecture_beyond_the_memory_is_refused_at_the_start(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path, {"training.batch_size": 4096})
    needed = training_memory(INITIAL, 4096, 4)
    Planner(0, run.config, run.paths, Memory(needed))
    found = f"resnet50.*(found).* about {needed} bytes to train with batch 4096; the limit is {needed - 1}"
    with pytest.raises(EnvironmentNotReadyError, match=rf"{found}.*smaller training.batch_size"):
        Planner(0, run.config, run.paths, Memory(needed - 1))


def test_an_agent_whose_memory_is_too_small_is_unable_before_it_is_ready(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path, {"replica.accelerator_memory_gib": 0.1, "training.trainer": "simulated"})
    agent = subprocess.run(
        [sys.executable, "-m", "replica", "--run", str(run.paths.root), "--replica", "0"],
        input=b"",
        capture_output=True,
        check=False,
    )
    (answer,) = map(json.loads, agent.stdout.splitlines())
    assert answer["type"] == "unable"
    assert "too large for the memory of an accelerator (replica.accelerator_memory_gib)" in answer["reason"]
    assert agent.returncode == EXIT_ENVIRONMENT


def test_a_foreign_architecture_file_is_found(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    store = ArchitectureStore(paths)
    child = Deepen("relu1").apply(INITIAL)
    store.save(INITIAL)
    path = paths.architecture(child.hash)
    path.parent.mkdir(parents=True)
    path.write_text(paths.architecture(INITIAL.hash).read_text())
    with pytest.raises(ArchitectureError, match="the file is foreign"):
        store.load(child.hash)
