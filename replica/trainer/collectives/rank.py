"""The place of a rank among the others, from the environment that its starter has set up."""

import contextlib
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from aiperf.errors import TrialFailedError
from aiperf.ranks import ADDRESS, PORT, first_local_rank, rank_numbers

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
    """The number of this process on its node, by its starter; the first of its group without."""
    found = rank_numbers(environment)
    return found.local_rank if found is not None else first_local_rank(environment)


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
    """Variables that name a free port of this node: the first of `hosts`, if there are any."""
    return {ADDRESS: hosts[0] if hosts else LOOPBACK, PORT: str(free_ports(1)[0])}


def free_ports(count: int) -> list[int]:
    """Different ports of this node that nobody listens on.

    Another process could take one before ours does, which is rare, and costs one trial.
    """
    with contextlib.ExitStack() as probes:
        # All are open until the last one is bound, so that no port comes twice.
        found = [probes.enter_context(socket.socket()) for _ in range(count)]
        for probe in found:
            probe.bind(("", 0))
        return [int(probe.getsockname()[1]) for probe in found]
