"""Candidates on disk: a file that breaks a rule of proposals is not used."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from aiperf.messages import Job
from aiperf.network.architecture import Architecture
from aiperf.run_directory.architectures import ArchitectureStore
from replica.search.candidates import Candidates
from replica.search.knowledge import Knowledge
from replica.search.lanes import ALL, Lane
from replica.search.planner import Memory, Planner
from replica.search.strategies.contract import MAX_MORPHS, lane_key
from search_space.limits import Limits, growth_limits
from search_space.morph_json import apply_all, morph_data
from search_space.morphisms import Deepen, Morph, Widen
from search_space.resnet import resnet
from testing.hand_made import HandMadeRun

INITIAL = resnet(50, 32, 10)
LIMITS = growth_limits(INITIAL, 4.0, None, 64, 4)
DEEPER = tuple(Deepen(f"s2b{block}_relu") for block in (1, 2, 3))
FIVE = (*DEEPER, Deepen("relu1"), Deepen("s3b1_relu"))


@pytest.fixture
def run(tmp_path: Path) -> HandMadeRun:
    run = HandMadeRun(tmp_path).at(0).release(100)
    return run.at(1).start_trial(1).epoch(1, 1).end_trial(1)


def plant(run: HandMadeRun, morphs: Iterable[Morph], parent: Architecture = INITIAL) -> Architecture:
    """Write a candidate for round 2 of replica 0; give its architecture."""
    morphs = tuple(morphs)
    child = apply_all(parent, morphs)
    document = {"hash": child.hash, "parent": parent.hash, "morphs": [morph_data(morph) for morph in morphs]}
    run.paths.candidate(0, 2).write_text(json.dumps(document))
    return child


def loaded(run: HandMadeRun, limits: Limits = LIMITS, lane: Lane = ALL) -> str | None:
    proposal = Candidates(0, run.paths, Knowledge(run.paths), limits, lane).load(2, {INITIAL.hash})
    return proposal.architecture.hash if proposal is not None else None


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
    own = Lane(lane_key(child) % 2, 2)
    assert loaded(run, lane=own) == child.hash
    assert loaded(run, lane=Lane(own.index + 1, 2)) is None
    assert "it is in the lane of another replica" in caplog.text


def test_the_planner_reads_candidates_of_its_own_lane_only(tmp_path: Path) -> None:
    run = HandMadeRun(tmp_path, {"run.replicas": 2}).at(0).release(100, replicas=2)
    run.at(1).start_trial(1).epoch(1, 1).end_trial(1)
    lane = Lane.of(0, 2)
    children = {apply_all(INITIAL, [morph]).hash: morph for morph in FIVE}
    (foreign, *_) = [morph for name, morph in children.items() if not lane.holds(int(name, 16))]
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
    [{"kind": "Widen", "stream": "conv1", "channels": "many"}, {"kind": "Widen"}, {"kind": "Shrink"},
     {"kind": "AddSkip", "source": 1, "target": 2}, {"kind": "Deepen", "after": "nowhere"}],
)  # fmt: skip
def test_morphs_that_are_not_valid_are_not_used(run: HandMadeRun, morph: dict[str, Any]) -> None:
    document = {"hash": "0" * 16, "parent": INITIAL.hash, "morphs": [morph]}
    run.paths.candidate(0, 2).write_text(json.dumps(document))
    assert loaded(run) is None
