"""Exchanges of hybrid trainings: an honest run is intact, and sums that contradict are found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aiperf.history.bodies import EpochCompleted, GroupExchanged, ServerServed
from analysis.reading.run_data import read_run
from testing.hand_made import HandMadeRun

HALF = {"updates": 23, "images": 719, "computing_s": 1.0, "group_s": 0.1, "waiting_s": 0.2, "bytes_exchanged": 9}


def found_in(root: Path, groups: int, **changes: Any) -> list[tuple[str, str]]:
    """Kinds and findings of a run with one trial, whose last exchange has these changes."""
    run = HandMadeRun(root, {"training.groups": groups, "replica.ranks": 2}).at(0).release(100).at(1).start_trial(1)
    replica = run.replicas[0]
    server = changes.pop("server", 0)
    for epoch, images in ((1, 1400), (2, 1474)):
        for group in (0, 1):
            last = (epoch, group) == (2, 1)
            facts: dict[str, Any] = {**HALF, "images": 719 - group, "staleness": (3, 20), "group": group}
            replica.append(GroupExchanged(trial=1, epoch=epoch, **{**facts, **(changes if last else {})}))
        replica.append(ServerServed(trial=1, epoch=epoch, server=server, updates=46, busy_share=0.1))
        # The rate is that of the servers.
        run.at(10 * epoch).completed(0, EpochCompleted(
            trial=1, epoch=epoch, images_trained=images, images_evaluated=360, correct=300, loss=1.0,
            validation_loss=1.0, learning_rate=0.002, evidence=None,
        ))  # fmt: skip
    run.at(30).end_trial(1).end(100)
    return [(damage.kind, damage.found) for damage in read_run(run.paths).damages if damage.kind != "evidence"]


def test_an_honest_hybrid_run_is_intact(tmp_path: Path) -> None:
    assert found_in(tmp_path, 2) == []


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"images": 800}, ("bounds", "trial 1 trained 2874 images")),
        ({"staleness": (3, 21)}, ("bounds", "a staleness for 24 of 23 updates")),
        ({"group": 2}, ("bounds", "group 2")),
        ({"server": 1}, ("bounds", "server 1")),
    ],
)
def test_exchanges_that_contradict_others_are_found(
    changes: dict[str, Any], found: tuple[str, str], tmp_path: Path
) -> None:
    assert found in found_in(tmp_path, 2, **changes)


def test_a_synchronous_run_exchanges_nothing(tmp_path: Path) -> None:
    assert ("conflict", "trial 1 exchanged") in found_in(tmp_path, 1)
