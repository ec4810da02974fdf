"""AIPerf's own manager: a replica that is free gets its next job at once."""

from __future__ import annotations

from aiperf.messages import Job, Started
from primary.managers.contract import EndReason


class NativeManager:
    """Holds nothing back."""

    def released(self, left_s: float) -> None:
        """Nothing to do: the primary keeps the time."""

    async def turn(self, replica: int) -> None:
        """Now."""

    def issued(self, replica: int, job: Job) -> None:
        """Nothing to do."""

    def started(self, started: Started) -> None:
        """Nothing to do."""

    def over(self, trial: int) -> None:
        """Nothing to do."""

    def closed(self, reason: EndReason) -> None:
        """Nothing to do."""
