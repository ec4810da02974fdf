"""The share of a node's accelerators that a replica plans with."""

import argparse
from pathlib import Path

import pytest

from replica.agent.examine.facts import _notes
from replica.agent.share import NodeShare, share_of_node
from search_space.limits import SHARER_BYTES, rank_memory, usable_memory
from tests.support.driver import FakeDriver
from tests.support.hand_made import HandMadeRun


def share(folder: Path, replicas: int, **settings: float) -> NodeShare:
    changes = {f"replica.{name}": value for name, value in settings.items()}
    run = HandMadeRun(folder / f"run-{len([*folder.iterdir()])}", {"training.trainer": "keras", **changes})
    return share_of_node(argparse.Namespace(replica=0, hosts="", share=replicas), run.config)


def test_ranks_take_no_more_of_a_card_than_their_replica_has_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    FakeDriver(gpus=2).install(monkeypatch.setattr)  # with 4 GiB each
    assert share(tmp_path, 2).ranks.accelerator_part == 1.0
    assert share(tmp_path, 4).ranks.accelerator_part == 0.25, "half of its part: the rest is for warm ranks"
    assert share(tmp_path, 4, accelerator_memory_gib=1.0).ranks.accelerator_part == 0.25
    assert share(tmp_path, 4, accelerator_memory_gib=3.0).ranks.accelerator_part == 0.75
    assert share(tmp_path, 4, accelerator_memory_gib=80.0).ranks.accelerator_part == 1.0
    FakeDriver.remove(monkeypatch.setattr)
    assert share(tmp_path, 4).ranks.accelerator_part == 1.0


@pytest.mark.parametrize("total", [40 * 10**9, 80 * 10**9, 141 * 10**9])
@pytest.mark.parametrize("sharers", [2, 3])
def test_what_shares_a_card_fits_on_it_with_all_that_warms_up(total: int, sharers: int) -> None:
    own = rank_memory(total, sharers)
    assert usable_memory(total, sharers) <= own
    assert sharers * (own + SHARER_BYTES) <= total


def test_slices_of_a_card_are_for_replicas_not_for_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    FakeDriver(gpus=2).install(monkeypatch.setattr)
    assert share(tmp_path, 1).ranks.ranks == 2
    FakeDriver(gpus=1, slices=(40, 20)).install(monkeypatch.setattr)
    both = share(tmp_path, 1)
    assert (both.ranks.ranks, len(both.accelerators)) == (1, 2)
    assert [note for note in _notes(both) if "MIG" in note] == [
        "2 accelerator(s) of a replica are slices (MIG), the first one of 40 GiB; "
        "ranks leave some of them idle, which more replicas use (replica.per_node)"
    ]
    assert share(tmp_path, 1, ranks=2).ranks.ranks == 2, "Horovod by MPI may join them"
    one = share(tmp_path, 2)
    assert (one.ranks.ranks, one.accelerators[0].word) == (1, "MIG-0-0")
    assert [note for note in _notes(one) if "MIG" in note] == [
        "1 accelerator(s) of a replica are slices (MIG), the first one of 40 GiB"
    ]
