"""Waits of several policies of patience, reported as one wait of their process."""

from __future__ import annotations

import threading
from collections.abc import Callable

from aiperf.storage.patience import Listener


class Waits:
    """Tells when a process begins to wait for storage, and when it can write again.

    `note` gets the reason, and "" at the end; it is called in any thread, never twice at once.
    """

    def __init__(self, note: Callable[[str], object]) -> None:
        self._note = note
        self._lock = threading.Lock()
        self._reasons: dict[str, str] = {}
        self._told = False

    def of(self, source: str) -> Listener:
        """A listener for one of the policies."""

        def take(reason: str) -> None:
            # Held during the call, so that a beginning and an end are noted in their order.
            with self._lock:
                self._reasons[source] = reason
                now = next(filter(None, self._reasons.values()), "")
                if bool(now) != self._told:
                    self._told = bool(now)
                    self._note(now)

        return take
