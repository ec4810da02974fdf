"""Rank starters by name: how the ranks of one training are started."""

from __future__ import annotations

import shutil

from replica.trainer.starters.contract import RankRequest, RankStarter
from replica.trainer.starters.horovodrun import start_with_horovodrun
from replica.trainer.starters.mpirun import start_with_mpirun
from replica.trainer.starters.none import start_alone

STARTERS: dict[str, RankStarter] = {
    "none": start_alone,
    "horovodrun": start_with_horovodrun,
    "mpirun": start_with_mpirun,
}


def choose_starter(configured: str, ranks: int, nodes: int) -> str:
    """The starter's name: as configured, else none for one rank, mpirun over nodes (where there is one), horovodrun."""
    if configured != "auto":
        return configured
    if ranks == 1:
        return "none"
    return "mpirun" if nodes > 1 and shutil.which("mpirun") else "horovodrun"


__all__ = ["STARTERS", "RankRequest", "RankStarter", "choose_starter"]
