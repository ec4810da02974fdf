from __future__ import annotations

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
