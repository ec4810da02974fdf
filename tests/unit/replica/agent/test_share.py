"""The share of a node's accelerators that a replica plans with."""

import argparse
from pathlib import Path

import pytest

from replica.agent.share import NodeShare, share_of_node
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
    assert share(tmp_path, 4).ranks.accelerator_part == 0.5
    assert share(tmp_path, 4, accelerator_memory_gib=1.0).ranks.accelerator_part == 0.5
    assert share(tmp_path, 4, accelerator_memory_gib=3.0).ranks.accelerator_part == 0.75
    assert share(tmp_path, 4, accelerator_memory_gib=80.0).ranks.accelerator_part == 1.0
    FakeDriver.remove(monkeypatch.setattr)
    assert share(tmp_path, 4).ranks.accelerator_part == 1.0
