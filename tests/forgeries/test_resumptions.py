"""Trainings resumed from another state than the recorded one: row 14 of the table.

The trainer refuses such a state (tests/unit/replica/trainer/test_checkpoints.py). Records that say
otherwise contradict each other.
"""

from pathlib import Path
from typing import Any

import pytest

from aiperf.records.bodies import EpochCompleted
from aiperf.records.reading import states_of
from analysis.reading.integrity.evidence import Unevidenced
from analysis.reading.run_data import RunData, read_run
from referee.audit.recorded import Recorded
from tests.support.forging import rewrite
from tests.support.forging.changes import of
from tests.support.hand_made import HandMadeRun

KEPT, OTHER = "ab" * 32, "cd" * 32


def resumed(root: Path) -> HandMadeRun:
    """A run whose training was interrupted after a state was kept, and resumed from it."""
    run = HandMadeRun(root).at(0).release(100).at(1).start_trial(1).at(30).epoch(1, 1, state=KEPT).at(40).resume()
    run.at(41).rejoin().at(42).start_trial(2, resumes=1).at(60).epoch(2, 2, resumed=KEPT, state=OTHER)
    return run.end(100)


def read(run: HandMadeRun) -> RunData:
    return read_run(run.paths)


def test_an_honest_resumption_is_not_accused(tmp_path: Path) -> None:
    run = resumed(tmp_path)
    data = read(run)
    assert data.damages == ()
    assert not any("resumed from" in line for line in Unevidenced(data.ledger))
    assert states_of(run.paths, {1: 0}) == (KEPT,)
    assert states_of(run.paths, {2: 0}) == (OTHER,)
    assert states_of(run.paths, {1: 1}) == ()


@pytest.mark.parametrize(
    ("place", "changes"),
    [
        ((2, 2), {"resumed": OTHER}),
        ((1, 1), {"state": OTHER}),
        ((1, 1), {"state": None}),
        ((1, 1), {"resumed": KEPT}),
    ],
    ids=["from another", "another kept", "none kept", "from nothing"],
)
def test_a_state_from_elsewhere_is_damage(place: tuple[int, int], changes: dict[str, Any], tmp_path: Path) -> None:
    run = resumed(tmp_path)
    rewrite(run.paths, of(EpochCompleted, *place, **changes))
    assert {damage.kind for damage in read(run).damages} == {"evidence"}


def test_a_resumption_that_names_no_state_is_not_official(tmp_path: Path) -> None:
    run = resumed(tmp_path)
    nothing: dict[str, Any] = {"resumed": None}
    rewrite(run.paths, of(EpochCompleted, 2, 2, **nothing))
    assert "trial 2 does not name the state that it was resumed from" in list(Unevidenced(read(run).ledger))


def test_the_first_epoch_after_a_resumption_is_always_audited(tmp_path: Path) -> None:
    run = resumed(tmp_path)
    assert [(claim.trial, claim.epoch) for claim in Recorded(run.paths, read(run)).resumed()] == [(2, 2)]
