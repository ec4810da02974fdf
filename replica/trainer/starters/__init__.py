"""Rank starters by name: how the ranks of one training are started."""

from __future__ import annotations

from replica.trainer.starters.contract import RankRequest, RankStarter
from replica.trainer.starters.none import start_alone

STARTERS: dict[str, RankStarter] = {"none": start_alone}

__all__ = ["STARTERS", "RankRequest", "RankStarter"]
