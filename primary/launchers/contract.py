"""The contract of a launcher: start a replica somewhere, talk to it line by line, know how it ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ReplicaSpec:
    """What to start. `log` takes the replica's standard error."""

    replica: int
    command: tuple[str, ...]
    log: Path
    environment: dict[str, str] = field(default_factory=dict)


class ReplicaProcess(Protocol):
    """A started replica."""

    async def send(self, data: bytes) -> None:
        """Write to its standard input. Does nothing once it is gone: `receive` tells that."""

    async def receive(self) -> bytes:
        """The next line of its standard output, b"" at its end. Raises MessageError on an endless line."""

    async def wait(self) -> int:
        """Exit code; minus the signal number where a signal ended it."""

    async def cancel(self, grace_s: float) -> int:
        """Terminate it and its children, kill what is left after `grace_s`. Gives the exit code."""


class Launcher(Protocol):
    """Starts replicas."""

    async def start(self, spec: ReplicaSpec) -> ReplicaProcess:
        """Start a replica. Raises LaunchError where it cannot be started."""
