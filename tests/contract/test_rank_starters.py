"""Rank starters as pure functions; tests/contract/test_ranks.py runs them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from replica.trainer.starters import STARTERS, RankRequest


@pytest.mark.parametrize("name", sorted(STARTERS))
def test_the_command_of_the_rank_is_kept_word_by_word(name: str) -> None:
    command = ("python", "-m", "replica.trainer", "a b", "$c")
    started = STARTERS[name](RankRequest(command))
    assert tuple(started[-len(command) :]) == command


def test_a_starter_of_one_rank_refuses_more() -> None:
    with pytest.raises(ValueError, match="starts 1 rank, not 2"):
        STARTERS["none"](RankRequest(("x",), ranks=2))


@pytest.mark.parametrize("name", ["horovodrun", "mpirun"])
def test_ranks_are_shared_evenly_by_the_nodes(name: str) -> None:
    words = STARTERS[name](RankRequest(("x",), ranks=8, hosts=("a", "b"), interface="ib0"))
    assert "a:4,b:4" in words
    assert "ib0" in words
    with pytest.raises(ValueError, match="3 ranks cannot be shared evenly by 2 nodes"):
        STARTERS[name](RankRequest(("x",), ranks=3, hosts=("a", "b")))


@pytest.mark.parametrize("name", ["horovodrun", "mpirun"])
def test_ranks_of_one_node_talk_over_the_loopback_only(name: str) -> None:
    assert "lo" in STARTERS[name](RankRequest(("x",), ranks=2))


def test_horovodrun_is_that_of_this_environment() -> None:
    assert STARTERS["horovodrun"](RankRequest(("x",), ranks=2))[0] == str(Path(sys.executable).parent / "horovodrun")
