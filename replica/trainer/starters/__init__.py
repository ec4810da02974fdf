"""Rank starters by name: they start the ranks of one training."""

import shutil

from aiperf.config.frameworks import DEFAULT_FRAMEWORK, TRAITS
from aiperf.registry import Registry
from replica.trainer.starters.contract import RankRequest, RankStarter

STARTERS: Registry[RankStarter] = Registry(
    "rank starter",
    {
        "none": "replica.trainer.starters.none:start_alone",
        "horovodrun": "replica.trainer.starters.horovodrun:start_with_horovodrun",
        "processes": "replica.trainer.starters.processes:start_processes",
        "mpirun": "replica.trainer.starters.mpirun:start_with_mpirun",
    },
)


def choose_starter(configured: str, ranks: int, nodes: int, framework: str = DEFAULT_FRAMEWORK) -> str:
    """The starter's name: as configured, or by the numbers of ranks and nodes.

    One rank needs none. Several nodes take mpirun; with Horovod, horovodrun if mpirun is not
    installed. On one node Horovod takes horovodrun, the others plain processes.
    """
    if configured != "auto":
        return configured
    if ranks == 1:
        return "none"
    if not TRAITS[framework].takes_horovod:
        return "mpirun" if nodes > 1 else "processes"
    return "mpirun" if nodes > 1 and shutil.which("mpirun") else "horovodrun"


__all__ = ["STARTERS", "RankRequest", "RankStarter", "choose_starter"]
