"""Candidates on disk: a file that breaks a rule of proposals is not used."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from aiperf.config.space import Hyperparameters
from aiperf.network.architecture import Architecture
from aiperf.records.cursor import Cursor
from aiperf.records.history_files import HistoryReader, HistoryWriter
from aiperf.run_directory.architectures import ArchitectureStore
from aiperf.wire.messages import Job
from replica.search.knowledge import Knowledge
from replica.search.partitions import ALL, Partition
from replica.search.planner import Candidates, Memory, Planner
from replica.search.strategies.contract import partition_key
from search_space.limits import Limits, growth_limits
from search_space.morphisms import MAX_MORPHS, Deepen, Morph, Widen, apply_all, morph_data
from search_space.resnet import resnet
from tests.support.hand_made import HandMadeRun

INITIAL = resnet(50, 32, 10)
LIMITS = growth_limits(INITIAL, 4.0, None, 64, 4)
DEEPER = tuple(Deepen(f"s2b{block}_relu") for block in (1, 2, 3))
BEST: Hyperparameters = {"batch_size": 64, "learning_rate": 0.1, "momentum": 0.9, "label_smoothing": 0.1}
"""Hyperparameters of the children of the initial architecture."""
FIVE = (*DEEPER, Deepen("relu1"), Deepen("s3b1_relu"))


@pytest.fixture
def run(tmp_path: Path) -> HandMadeRun:
    run = HandMadeRun(tmp_path).at(0).release(100)
    return run.at(1).start_trial(1).epoch(1, 1).end_trial(1)


def plant(run: HandMadeRun, morphs: Iterable[Morph], parent: Architecture = INITIAL) -> Architecture:
    """Write a candidate for round 2 of replica 0; give its architecture."""
    morphs = tuple(morphs)
    child = apply_all(parent, morphs)
    write(run, hash=child.hash, parent=parent.hash, morphs=[morph_data(morph) for morph in morphs])
    return child


def write(run: HandMadeRun, **changes: object) -> None:
    """Write a candidate for round 2 of replica 0, proposed now, with some fields changed."""
    reader = HistoryReader(run.paths)
    reader.read_new()
    child = DEEPER[0].apply(INITIAL)
    document = {
        "hash": child.hash,
        "parent": INITIAL.hash,
        "morphs": [morph_data(DEEPER[0])],
        "hyperparameters": BEST,
        "cursor": reader.cursor().heads,
        **changes,
    }
    run.paths.candidate(0, 2).write_text(json.dumps(document))


def loaded(run: HandMadeRun, limits: Limits = LIMITS, partition: Partition = ALL) -> str | None:
    knowledge = Knowledge(run.paths)
    knowledge.read()
    best = {INITIAL.hash: BEST}
    candidates = Candidates(0, run.paths, knowledge, limits, partition)
    plan = candidates.load(2, lambda proposal: best.get(str(proposal.parent)))
    return plan.proposal.architecture.hash if plan is not None else None


def planned(run: HandMadeRun) -> str:
    plans = Planner(0, run.config, run.paths, Memory())
    return plans.plan(Job(trial=2, round=2, seed=1)).proposal.architecture.hash


def test_a_candidate_that_keeps_the_rules_is_used(run: HandMadeRun) -> None:
    child = plant(run, FIVE[:MAX_MORPHS])
    assert loaded(run) == planned(run) == child.hash


def test_a_candidate_of_too_many_morphs_or_of_none_is_not_used(
    run: HandMadeRun, caplog: pytest.LogCaptureFixture
) -> None:
    child = plant(run, FIVE)
    assert loaded(run) is None
    assert "it has 5 morphs, not 1 to 4" in caplog.text
    assert planned(run) != child.hash
    plant(run, ())
    assert loaded(run) is None


def test_a_candidate_beyond_the_limits_is_not_used(run: HandMadeRun, caplog: pytest.LogCaptureFixture) -> None:
    child = plant(run, [Widen("conv1", 6400)])
    assert loaded(run) is None
    assert "operations an image; the limit is" in caplog.text or "parameters; the limit is" in caplog.text
    assert planned(run) != child.hash


def test_a_candidate_of_another_lane_is_not_used(run: HandMadeRun, caplog: pytest.LogCaptureFixture) -> None:
    child = plant(run, DEEPER)
    own = Partition(partition_key(child) % 2, 2)
    assert loaded(run, partition=own) == child.hash
    assert loaded(run, partition=Partition(own.index + 1, 2)) is None
    assert "it is in the partition of another replica" in caplog.text


def test_the_planner_reads_candidates_of_its_own_lane_only(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path, {"run.replicas": 2}).at(0).release(100, replicas=2)
    run.at(1).start_trial(1).epoch(1, 1).end_trial(1)
    partition = Partition.of(0, 2)
    children = {apply_all(INITIAL, [morph]).hash: morph for morph in FIVE}
    (foreign, *_) = [morph for name, morph in children.items() if not partition.holds(int(name, 16))]
    child = plant(run, [foreign])
    assert planned(run) != child.hash


def test_a_candidate_of_a_parent_that_no_trial_has_completed_is_not_used(
    run: HandMadeRun, caplog: pytest.LogCaptureFixture
) -> None:
    # Its file is there, and so are its morphs: only the history does not know it.
    parent = apply_all(INITIAL, FIVE)
    ArchitectureStore(run.paths).save(parent)
    child = plant(run, DEEPER[:1], parent)
    assert loaded(run) is None
    assert "is not a completed architecture of this run" in caplog.text
    assert planned(run) != child.hash


@pytest.mark.parametrize(
    "morph",
    [
        {"kind": "Widen", "stream": "conv1", "channels": "many"},
        {"kind": "Widen"},
        {"kind": "Shrink"},
        {"kind": "AddSkip", "source": 1, "target": 2},
        {"kind": "Deepen", "after": "nowhere"},
    ],
)
def test_morphs_that_are_not_valid_are_not_used(run: HandMadeRun, morph: dict[str, Any]) -> None:
    write(run, hash="0" * 16, morphs=[morph])
    assert loaded(run) is None


def test_a_planted_file_does_not_choose_hyperparameters(run: HandMadeRun, caplog: pytest.LogCaptureFixture) -> None:
    plans = Planner(0, run.config, run.paths, Memory())
    for planted in (BEST | {"batch_size": 512}, BEST | {"learning_rate": 2.0}, BEST | {"kernel_size": 7}, {}):
        write(run, hyperparameters=planted)
        assert plans.plan(Job(trial=2, round=2, seed=1)).hyperparameters == BEST
        assert loaded(run) is None
    assert caplog.text.count("its hyperparameters are not the best ones of its parent") == 8
    # Equal but of another type: the plan has those of the parent, not those of the file.
    write(run, hyperparameters=BEST | {"batch_size": 64.0})
    assert type(plans.plan(Job(trial=2, round=2, seed=1)).hyperparameters["batch_size"]) is int


def test_a_candidate_with_hyperparameters_that_were_beaten_since_is_not_used(run: HandMadeRun) -> None:
    plans = Planner(0, run.config, run.paths, Memory())
    plans.propose_ahead(2)
    run.hyperparameters = {**BEST, "batch_size": 32}
    run.replicas[1] = HistoryWriter(run.paths, "replica-0001", run.clock)
    run.start_trial(2, replica=1).epoch(2, 1, correct=340, replica=1).end_trial(2, replica=1)
    assert loaded(run) is not None, "it is as it was proposed"
    plan = plans.plan(Job(trial=3, round=2, seed=1))
    assert plan.proposal.parent == INITIAL.hash
    assert (plan.hyperparameters["batch_size"], plan.cursor) == (32, cursor_of(run))


def cursor_of(run: HandMadeRun) -> Cursor:
    reader = HistoryReader(run.paths)
    reader.read_new()
    return reader.cursor()


def test_a_candidate_has_the_cursor_that_it_was_proposed_from(run: HandMadeRun) -> None:
    plans = Planner(0, run.config, run.paths, Memory())
    before = cursor_of(run)
    plans.propose_ahead(2)
    run.lose(1, "of no concern")
    assert plans.plan(Job(trial=2, round=2, seed=1)).cursor == before != cursor_of(run)


@pytest.mark.parametrize(
    "cursor",
    [
        None,
        {},
        {"primary-1": [1, "0" * 64]},
        {"nobody-1": [0, "0" * 64]},
        {"replica-0000-1": [99, "0" * 64]},
        {"replica-0000-1": [0, "x"]},
        {"replica-0000-1": [-1, "0" * 64]},
    ],
)
def test_a_candidate_of_another_time_is_not_used(run: HandMadeRun, cursor: object) -> None:
    write(run, cursor=cursor)
    assert loaded(run) is None


def test_a_candidate_of_a_version_without_cursors_is_proposed_again(run: HandMadeRun) -> None:
    child = plant(run, DEEPER)
    file = run.paths.candidate(0, 2)
    document = json.loads(file.read_text())
    file.write_text(json.dumps({name: document[name] for name in ("hash", "parent", "morphs")}))
    assert planned(run) != child.hash
