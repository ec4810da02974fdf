"""The place of a rank among the others, from the environment that its starter has set up."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from aiperf.errors import TrialFailedError
from aiperf.ranks import ADDRESS, PORT, rank_numbers

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Place:
    """The place of one rank among several."""

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
    found = rank_numbers(environment)
    return found.local_rank if found is not None else 0


def place_of(ranks: int, environment: Mapping[str, str] = os.environ) -> Place:
    """Find this process's place.

    Raises TrialFailedError: "start" if the starter has left no numbers or no meeting point, "ranks"
    if there are more or fewer than `ranks`.
    """
    found = rank_numbers(environment)
    if found is None or ADDRESS not in environment or PORT not in environment:
        raise TrialFailedError("start", f"the starter gave no rank, or neither {ADDRESS} nor {PORT}")
    if found.size != ranks:
        raise TrialFailedError("ranks", f"{ranks} ranks were asked for, the starter has started {found.size}")
    return Place(found.rank, found.size, found.local_rank, environment[ADDRESS], int(environment[PORT]))


def meeting_point(hosts: tuple[str, ...]) -> dict[str, str]:
    """Variables that name a free port of this node, which is the first of `hosts` if there are any.

    The port is free when the probe closes it. Another process could take it before rank 0 does,
    which is rare, and costs one trial.
    """
    with socket.socket() as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    return {ADDRESS: hosts[0] if hosts else LOOPBACK, PORT: str(port)}
