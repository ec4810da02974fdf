"""Signs of life of a replica: its reports, and heartbeats while it has nothing to report."""

from __future__ import annotations

from collections.abc import Callable

from aiperf.clock import Clock
from aiperf.wire.messages import Alive, Message

PER_SILENCE = 4
"""Messages in `run.replica_silence`, after which the primary takes a replica for lost, at least."""

LEAST_S = 0.001
"""Least time to sleep: less may be nothing to a clock."""


class Heartbeats:
    """Sends the messages of a replica, and heartbeats between them."""

    def __init__(self, send: Callable[[Message], None], clock: Clock, silence_s: float) -> None:
        self._send = send
        self._clock = clock
        self._longest_s = silence_s / PER_SILENCE
        self._sent_s = clock.monotonic_s()

    def send(self, message: Message) -> None:
        """Send a message."""
        self._sent_s = self._clock.monotonic_s()
        self._send(message)

    async def beat(self, quiet: Callable[[], None]) -> None:
        """Send heartbeats for ever; `quiet` is called with each of them."""
        while True:
            left_s = self._sent_s + self._longest_s - self._clock.monotonic_s()
            if left_s > LEAST_S:
                await self._clock.sleep(left_s)
            else:
                self.send(Alive())
                quiet()
