"""The contract of a launcher: start a replica, talk to it line by line, know how it ended."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from aiperf.clock import Clock
from aiperf.config.settings import RunConfig
from aiperf.processes import describe_exit
from aiperf.run_directory.claim import PrimaryIdentity
from aiperf.wire.messages import ToPrimary


@dataclass(frozen=True, slots=True)
class ReplicaSpec:
    """A replica to start. Its standard error is appended to `log`."""

    replica: int
    command: tuple[str, ...]
    log: Path
    environment: dict[str, str] = field(default_factory=dict)
    identity: PrimaryIdentity = field(default_factory=PrimaryIdentity)
    """The primary that starts it: for names that others see, and its successors."""


@dataclass(frozen=True, slots=True)
class Exit:
    """The end of a replica: its exit code, or minus the number of the signal that ended it.

    Without a code the connection to it is lost, and its fate is not known.
    """

    code: int | None

    def __str__(self) -> str:
        if self.code is None:
            return "cannot be reached: the connection is lost"
        return f"{'was' if self.code < 0 else 'ended with'} {describe_exit(self.code)}"


class ReplicaProcess(Protocol):
    """A started replica."""

    async def send(self, data: bytes) -> None:
        """Write to its standard input.

        Does nothing once the replica has ended: `receive` reports that.
        """

    async def receive(self) -> bytes:
        """The next line of its standard output, b"" at its end.

        Raises MessageError on an endless line.
        """

    async def wait(self) -> Exit:
        """Wait for its end; may be asked again, also after `cancel`."""

    async def explain(self) -> str:
        """Further facts about an unexpected end, such as a failed node; may be empty."""

    async def cancel(self, grace_s: float) -> Exit:
        """Terminate it and its children, kill what is left after `grace_s`."""


@runtime_checkable
class HandsOver(Protocol):
    """A started replica in the primary's own process: its messages need not become text."""

    async def next_message(self) -> ToPrimary | None:
        """The next message, in place of its line from `receive`; None at the end."""


class Launcher(Protocol):
    """Starts replicas."""

    @property
    def per_node(self) -> int:
        """Replicas that share the CPUs and accelerators of a node."""

    async def start(self, spec: ReplicaSpec) -> ReplicaProcess:
        """Start a replica, which may take a while to begin.

        Raises LaunchError if it cannot be started.
        """


@runtime_checkable
class LeavesJobs(Protocol):
    """A launcher whose replicas may outlive their primary, as jobs of a scheduler."""

    def end_leftovers(self, identity: PrimaryIdentity) -> None:
        """End the replicas of earlier primaries of the run, if there are any. Raises nothing."""


class OpenLauncher(Protocol):
    """Makes a launcher; the registered object."""

    def __call__(self, config: RunConfig, clock: Clock, /) -> Launcher:
        """Make the launcher. Raises UsageError if it cannot work with the configuration."""
