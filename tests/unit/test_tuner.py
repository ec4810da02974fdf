"""The space of hyperparameters, TPE beyond its contract, and points in plans."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from aiperf.config.settings import load_config
from aiperf.config.space import CHECKS, Hyperparameters, Parameter, Space, read_space
from aiperf.errors import ConfigError
from aiperf.history.records import TrialEnded, TrialFailed, TrialStarted
from aiperf.messages import Job
from aiperf.network.layers import Conv
from aiperf.network.operations import count
from replica.search.demo.hyperparameters import OBJECTIVES, OPTIMUM, SPACE, coordinates, steps
from replica.search.knowledge import Knowledge
from replica.search.planner import Memory, Planner
from replica.search.tuners.contract import Result, Tried
from replica.search.tuners.tpe import STARTUP_SUGGESTIONS, suggest
from search_space.hyperparameters import (
    apply_hyperparameters,
    default_space_file,
    takes_kernel_size,
    with_kernel_size,
)
from search_space.limits import training_memory
from search_space.morphisms import Deepen
from search_space.resnet import resnet
from tests.helpers import HandMadeRun

INITIAL = resnet(50, 32, 10)
LINE: Space = (Parameter("learning_rate", "uniform", (0.0, 1.0)),)


def write(path: Path, document: object) -> Path:
    path.write_text(json.dumps(document))
    return path


def test_the_spaces_of_the_data_sets_are_valid() -> None:
    for dataset, batch in (("imagenet", 448), ("digits", 64)):
        space = read_space(default_space_file(dataset))
        assert [parameter.name for parameter in space] == ["kernel_size", "batch_size"]
        assert batch in space[1].values


def test_every_kind_of_nni_is_read(tmp_path: Path) -> None:
    values: dict[str, list[Any]] = {
        "choice": [1, 2.5, "a"], "randint": [3, 7], "uniform": [0, 1], "quniform": [1, 2, 0.4],
        "loguniform": [0.001, 1], "qloguniform": [1, 100, 10], "normal": [0, 1], "qnormal": [0, 4, 2],
        "lognormal": [0, 1], "qlognormal": [0, 1, 0.5],
    }  # fmt: skip
    assert values.keys() == CHECKS.keys()
    document = {kind: {"_type": kind, "_value": value} for kind, value in values.items()}
    space = read_space(write(tmp_path / "space.json", document), known=tuple(values))
    assert [parameter.kind for parameter in space] == list(values)
    assert [list(parameter.values) for parameter in space] == list(values.values())


def test_all_errors_of_a_file_are_reported_at_once(tmp_path: Path) -> None:
    document = {
        "kernal_size": {"_type": "choice", "_value": [3]},
        "kernel_size": {"_type": "uniform", "_value": [1, 5]},
        "batch_size": {"_type": "choice", "_value": [0, 64]},
        "learning_rate": {"_type": "loguniform", "_value": [0, 1]},
        "momentum": {"_type": "gaussian", "_value": [0, 1]},
        "label_smoothing": {"_type": "uniform", "_value": [0.3, 0.1]},
    }
    with pytest.raises(ConfigError) as error:
        read_space(write(tmp_path / "space.json", document))
    text = str(error.value)
    assert len(error.value.problems) == 6
    assert "kernal_size: unknown hyperparameter; known: kernel_size, batch_size" in text
    assert "kernel_size: must be whole numbers of at least 1: use choice or randint" in text
    assert "batch_size: must be whole numbers" in text
    assert "learning_rate: the lower bound 0 must be above 0" in text
    assert "momentum: _type is 'gaussian'; known: choice, randint" in text
    assert "label_smoothing: the lower bound 0.3 must be below the upper bound 0.1" in text


@pytest.mark.parametrize(
    "document",
    ["", "[]", "{}", '{"momentum": 3}', '{"momentum": {"_type": "choice"}}',
     '{"momentum": {"_type": "choice", "_value": []}}', '{"momentum": {"_type": "uniform", "_value": [1]}}',
     '{"momentum": {"_type": "uniform", "_value": 3}}'],
)  # fmt: skip
def test_what_is_not_a_space_is_refused(tmp_path: Path, document: str) -> None:
    path = tmp_path / "space.json"
    path.write_text(document)
    with pytest.raises(ConfigError, match=r"space\.json"):
        read_space(path)
    with pytest.raises(ConfigError, match=r"search\.space: .*space\.json"):
        load_config(overrides={"search.space": str(path)})


def tried_line(values: int, peak: float) -> Tried:
    rng = random.Random(3)
    points = [rng.random() for _ in range(values)]
    return Tried(tuple(Result({"learning_rate": u}, 1 - abs(u - peak)) for u in points))


def test_it_maximises_accuracy() -> None:
    """Fails if the sign is wrong: suggestions gather near the highest accuracy."""
    for peak in (0.1, 0.9):
        drawn = [float(suggest(LINE, tried_line(60, peak), seed)["learning_rate"]) for seed in range(20)]
        assert sum(abs(u - peak) for u in drawn) / 20 < 0.15


def test_after_the_start_up_suggestions_the_history_decides() -> None:
    def drawn(tried: Tried) -> list[Hyperparameters]:
        return [suggest(LINE, tried, seed) for seed in range(5)]

    assert drawn(tried_line(STARTUP_SUGGESTIONS + 5, 0.1)) != drawn(tried_line(STARTUP_SUGGESTIONS + 5, 0.9))
    assert drawn(tried_line(3, 0.1)) == drawn(tried_line(3, 0.9)), "start-up suggestions are random"


def test_the_kernel_size_is_applied_before_the_model_is_built() -> None:
    grown = Deepen("s2b1_relu").apply(Deepen("relu1").apply(INITIAL))
    tuned = apply_hyperparameters(grown, {"kernel_size": 5, "batch_size": 8})
    changed = [n.name for n, old in zip(tuned.nodes, grown.nodes, strict=True) if n.layer != old.layer]
    assert sorted(changed) == ["deep1_conv", "deep2_conv"]
    assert all(
        node.layer.kernel == (5, 5)
        for node in tuned.nodes
        if isinstance(node.layer, Conv) and node.layer.tunable_kernel
    )
    assert count(tuned).operations.total > count(grown).operations.total
    assert (takes_kernel_size(INITIAL), takes_kernel_size(grown)) == (False, True)
    assert with_kernel_size(INITIAL, 5) == INITIAL
    assert apply_hyperparameters(grown, {"batch_size": 8}) == grown


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_objectives_are_accuracies_with_their_largest_value_at_the_optimum(name: str) -> None:
    best: Hyperparameters = {
        "kernel_size": 3,
        "batch_size": 314,
        "learning_rate": 0.126,
        "momentum": 0.892,
        "label_smoothing": 0.1,
    }
    assert all(abs(u - v) < 0.02 for u, v in zip(coordinates(best), OPTIMUM, strict=True))
    values = [step.value for step in steps(name, "random", 40, 1)]
    assert all(0 <= value <= 1 for value in values)
    assert max(values) < OBJECTIVES[name](best)


def test_tpe_beats_random_search() -> None:
    def median(strategy: str) -> float:
        return sorted(list(steps("rastrigin", strategy, 40, seed))[-1].best for seed in range(9))[4]

    assert median("tpe") > median("random")
    assert {parameter.kind for parameter in SPACE} == {"choice", "randint", "loguniform", "uniform", "quniform"}


@pytest.fixture
def run(tmp_path: Path) -> HandMadeRun:
    return HandMadeRun(tmp_path, {"run.replicas": 1}).at(0).release(100)


def start(run: HandMadeRun, trial: int, hyperparameters: Hyperparameters, number: int, base: int | None = None) -> None:
    run.replicas[0].append(
        TrialStarted(
            trial=trial, replica=0, round=4, architecture=run.architecture.hash, parent=None,
            hyperparameters=hyperparameters, epochs=2, point=number, base=base,
        )
    )  # fmt: skip


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


def test_batches_beyond_the_memory_of_the_accelerator_are_not_suggested(run: HandMadeRun) -> None:
    start(run, 1, {"batch_size": 64}, 0)
    run.at(2).epoch(1, 1).end_trial(1)
    memory = training_memory(run.architecture, 50, 4)
    plans = Planner(0, run.config, run.paths, Memory(memory))
    for trial in range(2, 10):
        assert int(plans.plan(Job(trial=trial, round=4, seed=1, point=1, base=1)).hyperparameters["batch_size"]) <= 48


def test_the_search_gets_predictions_in_warm_up_and_one_result_an_architecture(run: HandMadeRun) -> None:
    start(run, 1, {"batch_size": 64}, 0)
    run.at(2).epoch(1, 1, correct=180)
    run.replicas[0].append(TrialEnded(trial=1, reason="completed", predicted_accuracy=0.8))
    start(run, 2, {"batch_size": 32}, 1, base=1)
    run.at(3).epoch(2, 1, correct=90).end_trial(2)
    knowledge = Knowledge(run.paths)
    knowledge.read()
    (observation,) = knowledge.observations().completed
    assert observation.accuracy == 0.8
