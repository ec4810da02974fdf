"""The place of a rank among the others, from the environment that its starter has made."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from aiperf.errors import TrialFailedError

ADDRESS, PORT = "MASTER_ADDR", "MASTER_PORT"
"""Variables with the place where the ranks meet: rank 0 listens there."""

LOOPBACK = "127.0.0.1"

_NAMES = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK"),
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    # Last: an agent that SLURM has started hands its own numbers down.
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
)
"""Rank, number of ranks, rank on the node: of Open MPI, horovodrun, torchrun, SLURM."""


@dataclass(frozen=True, slots=True)
class Place:
    """One rank of several."""

    rank: int
    size: int
    local_rank: int
    address: str
    port: int

    @property
    def meeting_point(self) -> str:
        """Host and port of rank 0."""
        return f"{self.address}:{self.port}"


def local_rank_of(environment: Mapping[str, str] = os.environ) -> int:
    """The number on its node that a starter has given this process; 0 if none has."""
    return next((int(environment.get(local, "0")) for rank, _, local in _NAMES if rank in environment), 0)


def place_of(ranks: int, environment: Mapping[str, str] = os.environ) -> Place:
    """This process's place.

    Raises TrialFailedError: "start" if the starter has left no numbers or no meeting point, "ranks"
    if there are more or fewer than `ranks`.
    """
    names = next((names for names in _NAMES if names[0] in environment), None)
    if names is None or ADDRESS not in environment or PORT not in environment:
        raise TrialFailedError("start", f"the starter gave no rank, or neither {ADDRESS} nor {PORT}")
    rank, size, local_rank = (int(environment.get(name, "0")) for name in names)
    if size != ranks:
        raise TrialFailedError("ranks", f"{ranks} ranks were asked for, the starter has started {size}")
    return Place(rank, size, local_rank, environment[ADDRESS], int(environment[PORT]))


def meeting_point(hosts: tuple[str, ...]) -> dict[str, str]:
    """Variables that name a free port of this node, the first of `hosts` if there are several."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    return {ADDRESS: hosts[0] if hosts else LOOPBACK, PORT: str(port)}
