"""Managers by name: they decide when a replica gets its next job, and begin and resume a run.

Jobs and records are the primary's: under any manager the records are the same.
"""

from typing import Literal, Protocol

from aiperf.clock import Clock
from aiperf.config.settings import RunConfig
from aiperf.registry import Registry
from aiperf.run_directory.paths import RunPaths
from aiperf.wire.messages import Job, Started

EndReason = Literal["deadline", "interrupted", "no_replicas", "completed"]
"""The reason of the end of a run."""


class Manager(Protocol):
    """Paces the jobs of a run.

    All methods are called in the primary's event loop, and only `turn` may wait.
    """

    def released(self, left_s: float) -> None:
        """Note that the clock of the run has started, with this many seconds left."""

    async def turn(self, replica: int) -> None:
        """Wait until the replica may have its next job. Cancelled if the run ends first."""

    def issued(self, replica: int, job: Job) -> None:
        """Note that the replica gets this job."""

    def started(self, started: Started) -> None:
        """Note the architecture and hyperparameters of a job."""

    def over(self, trial: int) -> None:
        """Note that a job has ended, by success, failure or loss. It may never have started."""

    def closed(self, reason: EndReason) -> None:
        """Note that the run and its replicas have ended."""


class ManagedRun(Protocol):
    """A run under one manager, as the command line sees it."""

    def begin(self) -> EndReason:
        """Carry out a new run, whose directory has its manifest. Raises AiperfError."""

    def resume(self, new_clock: bool) -> EndReason:
        """Carry out the rest of an interrupted run.

        Raises UsageError if it cannot be resumed, or not like this.
        """


class OpenRun(Protocol):
    """Opens a run under one manager; the registered object. Nothing is started yet."""

    def __call__(self, config: RunConfig, paths: RunPaths, clock: Clock, /) -> ManagedRun:
        """Open the run."""


MANAGERS: Registry[OpenRun] = Registry(
    "manager", {"native": "primary.native:NativeRun", "nni": "primary.nni.experiment:NniRun"}
)
"""The place to register a new manager."""
