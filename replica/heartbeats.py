"""Signs of life of a replica: its reports, and heartbeats while it has nothing to report."""

from __future__ import annotations

from collections.abc import Callable

from aiperf.clock import Clock
from aiperf.messages import Alive, Message

LOOKS_PER_SILENCE = 6
"""Looks whether a heartbeat is due per `run.replica_silence`, after which the primary takes a
replica for lost. None is due if anything was sent since the last look, so that less than a third of
that time passes between two messages.
"""


class Heartbeats:
    """Sends the messages of a replica, and heartbeats between them."""

    def __init__(self, send: Callable[[Message], None], clock: Clock, silence_s: float) -> None:
        self._send = send
        self._clock = clock
        self._silence_s = silence_s
        self._sent = False

    def send(self, message: Message) -> None:
        """Send a message."""
        self._sent = True
        self._send(message)

    async def beat(self, quiet: Callable[[], None]) -> None:
        """Send heartbeats for ever; `quiet` is called with each of them."""
        while True:
            await self._clock.sleep(self._silence_s / LOOKS_PER_SILENCE)
            if not self._sent:
                self._send(Alive())
                quiet()
            self._sent = False
