"""What breaks in a rehearsal: drawn from the mean times between failures of its machine file."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from aiperf.clock import Clock
from rehearsal.cluster import HOUR_S, Cluster
from rehearsal.machine.file import FailuresSection

Kind = Literal["node", "rack", "storage", "primary"]

OUTAGES = ("", "No space left on device", "Stale file handle")
"""What a file server does to writers: it lets them wait, is full, or has forgotten their files."""


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """Something that breaks `at_s` seconds after the start."""

    at_s: float
    kind: Kind
    where: int = 0
    """Number of the node or rack; of an outage the index of what it does."""


def draw_faults(settings: FailuresSection, replicas: int, duration_s: float, rng: random.Random) -> list[Fault]:
    """The faults of a run by time: each kind is a Poisson process over all that may break."""
    racks = -(-replicas // settings.rack_nodes)
    found = [
        *_drawn("node", settings.node_mtbf_h, replicas, duration_s, rng),
        *_drawn("rack", settings.rack_mtbf_h, racks, duration_s, rng),
        *_drawn("storage", settings.storage_mtbf_h, 1, duration_s, rng, len(OUTAGES)),
        *_drawn("primary", settings.primary_mtbf_h, 1, duration_s, rng),
    ]
    return sorted(found)


def _drawn(
    kind: Kind, mtbf_h: float | None, number: int, duration_s: float, rng: random.Random, ways: int = 0
) -> Iterator[Fault]:
    if mtbf_h is None:
        return
    at_s = 0.0
    while (at_s := at_s + rng.expovariate(number / (mtbf_h * HOUR_S))) < duration_s:
        yield Fault(at_s, kind, rng.randrange(ways or number))


class PrimaryDiesError(Exception):
    """The node of the primary fails."""


class Breaker:
    """Lets the faults of a whole run happen, whatever becomes of its primaries."""

    def __init__(self, cluster: Cluster, faults: list[Fault]) -> None:
        self._cluster = cluster
        self._left = faults[::-1]
        self.happened: list[Fault] = []

    async def play(self, clock: Clock) -> None:
        """Break what is due, one after the other. Raises PrimaryDiesError."""
        while self._left:
            await clock.sleep(max(0.0, self._left[-1].at_s - clock.monotonic_s()))
            fault = self._left.pop()
            self.happened.append(fault)
            self._happen(fault)

    def _happen(self, fault: Fault) -> None:
        settings = self._cluster.machine.failures
        if fault.kind == "primary":
            raise PrimaryDiesError
        if fault.kind == "storage":
            self._cluster.storage.refuse(settings.storage_s, OUTAGES[fault.where])
        elif fault.kind == "node":
            self._kill(fault.where)
        else:
            first = fault.where * settings.rack_nodes
            for replica in range(first, first + settings.rack_nodes):
                self._kill(replica)

    def _kill(self, replica: int) -> None:
        if (process := self._cluster.processes.get(replica)) is not None:
            process.kill()
