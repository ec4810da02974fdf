"""The contract of a manager: it decides when a replica gets its next job, and is told what becomes of it.

What a job is, and everything that is recorded, is the primary's: under any manager the records are the same.
"""

from __future__ import annotations

from typing import Literal, Protocol

from aiperf.messages import Job, Started

EndReason = Literal["deadline", "interrupted", "no_replicas"]
"""How a run ended."""


class Manager(Protocol):
    """Drives a run. All methods are called from the primary's event loop, and none but `turn` waits."""

    def released(self, left_s: float) -> None:
        """The run's clock runs, and has so many seconds left."""

    async def turn(self, replica: int) -> None:
        """Wait until the replica may have its next job. Cancelled where the run ends first."""

    def issued(self, replica: int, job: Job) -> None:
        """The replica gets this job."""

    def started(self, started: Started) -> None:
        """What a job trains is known."""

    def over(self, trial: int) -> None:
        """A job ended, in whatever way. It may never have started."""

    def closed(self, reason: EndReason) -> None:
        """The run has ended, and so have its replicas."""
