"""The contract of a launcher: start a replica somewhere, talk to it line by line, know how it ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from aiperf.processes import describe_exit


@dataclass(frozen=True, slots=True)
class ReplicaSpec:
    """What to start. `log` takes the replica's standard error."""

    replica: int
    command: tuple[str, ...]
    log: Path
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Exit:
    """How a replica ended. `code` is its exit code, minus the signal number where a signal ended it.

    Without a code the connection to it is lost, and what became of it is not known.
    """

    code: int | None

    def __str__(self) -> str:
        if self.code is None:
            return "cannot be reached: the connection is lost"
        return f"ended with {describe_exit(self.code)}"


class ReplicaProcess(Protocol):
    """A started replica."""

    async def send(self, data: bytes) -> None:
        """Write to its standard input. Does nothing once it is gone: `receive` tells that."""

    async def receive(self) -> bytes:
        """The next line of its standard output, b"" at its end. Raises MessageError on an endless line."""

    async def wait(self) -> Exit:
        """How it ended."""

    async def explain(self) -> str:
        """What is known of an end that was not expected, beyond its code, such as a node that failed; or nothing."""

    async def cancel(self, grace_s: float) -> Exit:
        """Terminate it and its children, kill what is left after `grace_s`."""


class Launcher(Protocol):
    """Starts replicas."""

    @property
    def per_node(self) -> int:
        """How many replicas share a node's CPUs and accelerators."""

    async def start(self, spec: ReplicaSpec) -> ReplicaProcess:
        """Start a replica; it may take its time to begin. Raises LaunchError where it cannot be started."""
