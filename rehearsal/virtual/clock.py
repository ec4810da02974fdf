"""Clocks of nodes in virtual time, off the primary's by an amount that may grow."""

import asyncio
from collections.abc import Awaitable
from typing import Protocol

T0_MS = 1_700_000_000_000
"""UTC at which virtual time begins, in milliseconds: the same in every rehearsal."""


class TimeKeeper(Protocol):
    """A loop that time can pass on."""

    def time(self) -> float:
        """Seconds."""

    def advance(self, seconds: float) -> None:
        """Let time pass."""

    def after(self, seconds: float) -> Awaitable[None]:
        """Comes when some time has passed."""


class VirtualClock:
    """A node's clock in virtual time.

    It is `offset_ms` ahead of the primary's at the start and gains `drift_ppm` microseconds a
    second.
    """

    def __init__(self, loop: TimeKeeper, offset_ms: int = 0, drift_ppm: float = 0.0) -> None:
        self._loop = loop
        self._offset_ms = offset_ms
        self._rate = 1.0 + drift_ppm * 1e-6

    def utc_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC, as this node believes."""
        return self.utc_ms_at(self.monotonic_ms())

    def monotonic_ms(self) -> int:
        """Milliseconds since the loop was made, as this node counts them."""
        # Drift is of the monotonic clock, from which UTC is counted on: both drift together.
        return round(self._loop.time() * 1000 * self._rate)

    def utc_ms_at(self, monotonic_ms: int) -> int:
        """UTC of a moment of the monotonic clock, as this node believes."""
        return T0_MS + self._offset_ms + monotonic_ms

    def monotonic_s(self) -> float:
        """Seconds since the loop was made."""
        return self._loop.time()

    async def sleep(self, seconds: float) -> None:
        """Let time pass; other tasks continue."""
        await (self._loop.after(seconds) if seconds > 0 else asyncio.sleep(0))

    def pause(self, seconds: float) -> None:
        """Let time pass."""
        self._loop.advance(seconds)
