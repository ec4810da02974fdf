"""What gives way first as replicas are added: the costs of a replica against what can bear them."""

from __future__ import annotations

from dataclasses import dataclass

from rehearsal.machine.file import MachineFile

PRIMARY_S_PER_MESSAGE = 140e-6
"""CPU seconds of the primary for a message of a replica (docs/performance.md)."""

PRIMARY_SHARE = 0.7
"""Share of its core from which on the primary answers late."""


@dataclass(frozen=True, slots=True)
class Load:
    """What one replica costs the others, a second of a run: as counted in a rehearsal."""

    messages: float
    """To the primary."""
    writes: float
    """To the shared file system, of records, by replica and primary."""
    bytes: float
    """Of records."""


@dataclass(frozen=True, slots=True)
class FirstLimit:
    """The first limit that more replicas reach, and at how many."""

    what: str
    replicas: int


def first_limit(machine: MachineFile, load: Load) -> FirstLimit:
    """The limit that is reached with the fewest replicas."""
    storage = machine.storage
    bearable = {
        "CPU of the primary": PRIMARY_SHARE / PRIMARY_S_PER_MESSAGE / max(load.messages, 1e-9),
        "operations of the file server": storage.operations_per_s / max(load.writes, 1e-9),
        "bytes written to the file server": storage.bytes_per_s / max(load.bytes, 1e-9),
    }
    what = min(bearable, key=lambda name: bearable[name])
    return FirstLimit(what, max(1, int(bearable[what])))
