"""Heads of the primary's file, announced while the run is in progress.

The head is the hash of the last record. Records are chained, and those of the primary carry hashes
of the replicas' records, so that one head stands for everything that was heard of until then. A
head that others have signed, or stamped with a time, proves that the run was this far.
"""

from __future__ import annotations

from aiperf.rules.score import GRID_MS
from primary.context import RunContext

EXPLANATION = (
    "the lines that begin with 'head' can be signed or time-stamped by others: they prove that the run was this far"
)


class HeadLines:
    """Announces the head at the release, every 0.1 hour after it, and at the end."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._next = 0
        """The first moment of the grid that was not announced yet."""

    def look(self, elapsed_s: float) -> None:
        """Announce the head if another 0.1 hour has passed since the release."""
        passed = int(elapsed_s * 1000) // GRID_MS
        if passed >= self._next:
            if self._next == 0:
                self._context.announce(EXPLANATION)
            self._next = passed + 1
            self._announce(f"{passed * GRID_MS / 3_600_000:.1f} h")

    def last(self) -> None:
        """Announce the head after the last record."""
        self._announce("end")

    def _announce(self, moment: str) -> None:
        head = self._context.writer.head
        if head is not None:
            self._context.announce(f"head {moment}: {self._context.writer.name} record {head[0]} sha256 {head[1]}")
