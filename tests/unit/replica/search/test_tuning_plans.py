"""Points of a round in the plans of a replica."""

import json
from pathlib import Path

import pytest

from aiperf.config.settings import load_config
from aiperf.config.space import Hyperparameters
from aiperf.records.bodies import TrialEnded, TrialFailed, TrialStarted
from aiperf.run_directory.architectures import ArchitectureStore
from aiperf.wire.messages import Job
from replica.search.knowledge import Knowledge
from replica.search.planner import Memory, Planner
from search_space.hyperparameters import apply_hyperparameters
from search_space.limits import training_memory
from search_space.morphisms import Deepen
from search_space.resnet import resnet
from tests.support.hand_made import HandMadeRun


@pytest.fixture
def run(tmp_path: Path) -> HandMadeRun:
    return HandMadeRun(tmp_path, {"run.replicas": 1}).at(0).release(100)


def start(run: HandMadeRun, trial: int, hyperparameters: Hyperparameters, number: int, base: int | None = None) -> None:
    run.replicas[0].append(
        TrialStarted(
            trial=trial,
            replica=0,
            round=4,
            architecture=run.architecture.hash,
            parent=None,
            hyperparameters=hyperparameters,
            epochs=2,
            point=number,
            base=base,
        )
    )


def planner(run: HandMadeRun) -> Planner:
    return Planner(0, run.config, run.paths, Memory())


def test_a_point_trains_the_architecture_of_its_base_with_suggested_hyperparameters(run: HandMadeRun) -> None:
    start(run, 1, {"batch_size": 64}, 0)
    run.at(2).epoch(1, 1).end_trial(1)
    plan = planner(run).plan(Job(trial=2, round=4, seed=1, point=1, base=1))
    assert plan.hyperparameters["batch_size"] in (32, 48, 64, 96)
    assert plan.hyperparameters["kernel_size"] in (2, 3, 4, 5)
    assert plan.hyperparameters["learning_rate"] == 0.1
    assert plan.proposal.architecture == apply_hyperparameters(run.architecture, plan.hyperparameters)


def test_a_rounds_own_training_has_the_best_hyperparameters_of_its_parent(run: HandMadeRun) -> None:
    start(run, 1, {"batch_size": 64, "learning_rate": 0.1}, 0)
    run.at(2).epoch(1, 1, correct=100).end_trial(1)
    start(run, 2, {"batch_size": 32, "learning_rate": 0.1, "kernel_size": 3}, 1, base=1)
    run.at(3).epoch(2, 1, correct=200).end_trial(2)
    plan = planner(run).plan(Job(trial=3, round=5, seed=1))
    assert plan.proposal.parent == run.architecture.hash
    assert plan.hyperparameters == {"batch_size": 32, "learning_rate": 0.1, "momentum": 0.9, "label_smoothing": 0.1}


def test_out_of_memory_points_are_known_to_all(run: HandMadeRun) -> None:
    start(run, 1, {"batch_size": 64}, 0)
    run.at(2).epoch(1, 1).end_trial(1)
    start(run, 2, {"batch_size": 48, "kernel_size": 3}, 1, base=1)
    run.replicas[0].append(TrialFailed(trial=2, replica=0, kind="out_of_memory", reason="no room"))
    for trial in range(3, 9):
        assert planner(run).plan(Job(trial=trial, round=4, seed=1, point=2, base=1)).hyperparameters["batch_size"] == 32


def test_a_point_that_would_train_the_same_again_is_not_suggested(run: HandMadeRun) -> None:
    # ResNet-50 itself has no block that takes the kernel size: only the batch size makes a
    # difference.
    start(run, 1, {"batch_size": 64, "learning_rate": 0.1, "momentum": 0.9, "label_smoothing": 0.1}, 0)
    run.at(2).epoch(1, 1).end_trial(1)
    for trial in range(2, 12):
        assert planner(run).plan(Job(trial=trial, round=4, seed=1, point=1, base=1)).hyperparameters["batch_size"] != 64


def test_batches_beyond_the_memory_of_the_accelerator_are_not_suggested(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path, {"run.replicas": 1, "training.batch_size": 48}).at(0).release(100)
    start(run, 1, {"batch_size": 64}, 0)
    run.at(2).epoch(1, 1).end_trial(1)
    memory = training_memory(run.architecture, 50, 4)
    plans = Planner(0, run.config, run.paths, Memory(memory))
    for trial in range(2, 10):
        assert int(plans.plan(Job(trial=trial, round=4, seed=1, point=1, base=1)).hyperparameters["batch_size"]) <= 48


def test_a_child_does_not_inherit_a_batch_that_is_too_large_for_it(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path, {"run.replicas": 1, "training.batch_size": 32}).at(0).release(100)
    start(run, 1, {"batch_size": 64, "momentum": 0.8}, 0)
    run.at(2).epoch(1, 1).end_trial(1)
    for most, batch in ((1000, 64), (60, 32)):
        memory = Memory(training_memory(run.architecture, most, 4))
        plan = Planner(0, run.config, run.paths, memory).plan(Job(trial=2, round=5, seed=1))
        assert (plan.hyperparameters["batch_size"], plan.hyperparameters["momentum"]) == (batch, 0.8)


def test_kernels_beyond_the_limits_of_growth_are_not_suggested(tmp_path: Path) -> None:
    grown = Deepen("s5b3_relu").apply(resnet(50, 32, 10))
    sizes = {size: apply_hyperparameters(grown, {"kernel_size": size}) for size in (2, 3, 4, 5)}
    growth = sizes[4].parameter_count / resnet(50, 32, 10).parameter_count
    run = HandMadeRun(tmp_path, {"search.max_growth": growth}).at(0).release(100)
    run.architecture = grown
    ArchitectureStore(run.paths).save(grown)
    start(run, 1, {"batch_size": 64}, 0)
    run.at(2).epoch(1, 1).end_trial(1)
    found = set()
    for seed in range(1, 9):
        config = load_config(overrides={"run.dataset": "digits", "search.max_growth": growth, "run.seed": seed})
        plans = Planner(0, config, run.paths, Memory())
        found.add(plans.plan(Job(trial=2, round=4, seed=1, point=1, base=1)).proposal.architecture.hash)
    assert found == {sizes[size].hash for size in (2, 3, 4)}


def test_the_search_gets_predictions_in_warm_up_until_a_later_round_measures(run: HandMadeRun) -> None:
    def observed() -> list[float]:
        knowledge = Knowledge(run.paths)
        knowledge.read()
        return [observation.accuracy for observation in knowledge.observations().completed]

    for trial, predicted in ((1, 0.7), (2, 0.8), (3, 0.75)):
        start(run, trial, {"batch_size": 64}, 0)
        run.at(trial).epoch(trial, 1, correct=180)
        run.replicas[0].append(TrialEnded(trial=trial, reason="completed", predicted_accuracy=predicted))
    assert observed() == [0.8], "one result an architecture"
    start(run, 4, {"batch_size": 64}, 0)
    run.at(4).epoch(4, 1, correct=270)
    run.replicas[0].append(TrialEnded(trial=4, reason="stopped"))
    assert observed() == [0.8], "the end of the run left trial 4 without a result"
    start(run, 5, {"batch_size": 32}, 1, base=1)
    run.at(5).epoch(5, 1, correct=90).end_trial(5)
    assert observed() == [0.75], "measured beats predicted"


def test_sixteen_replicas_that_ask_at_the_same_moment_get_different_points(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path, {"run.replicas": 16}).at(0).release(100)
    space = {
        "learning_rate": {"_type": "uniform", "_value": [0.0, 1.0]},
        "batch_size": {"_type": "choice", "_value": [32, 64]},
    }
    run.paths.space.write_text(json.dumps(space))
    start(run, 1, {"batch_size": 64}, 0)
    run.at(1).epoch(1, 1).end_trial(1)
    for trial in range(2, 42):
        rate = trial / 42
        start(run, trial, {"batch_size": 64, "learning_rate": rate}, 1, base=1)
        run.at(trial).epoch(trial, 1, correct=round(300 - 200 * abs(rate - 0.3))).end_trial(trial)
    knowledge = Knowledge(run.paths)

    def points() -> list[Hyperparameters]:
        planners = [Planner(replica, run.config, run.paths, Memory(), knowledge) for replica in range(16)]
        # Their jobs differ in round, point and seed.
        jobs = [Job(trial=50 + r, round=4 + r % 3, seed=r, point=1 + r % 2, base=1) for r in range(16)]
        return [plans.plan(job).hyperparameters for plans, job in zip(planners, jobs, strict=True)]

    found = points()
    assert len({str(point) for point in found}) >= 12
    assert points() == found
