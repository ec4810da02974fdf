"""The agent's side of storage that refuses: its reports, and the ends of its file."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable

from aiperf.clock import Clock
from aiperf.errors import StorageError
from aiperf.history.files import HistoryWriter
from aiperf.messages import Message, StorageWait
from aiperf.run_directory.paths import RunPaths
from aiperf.storage.patience import PATIENCE, Listener, Patience

log = logging.getLogger(__name__)

LOOK_S = 1.0
"""Seconds between two looks for the end of the pipe while the file cannot be made."""


class StorageReports:
    """Reports to the primary that the replica waits for storage, and that it can write again."""

    def __init__(self, send: Callable[[Message], None]) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._reasons: dict[str, str] = {}
        self._reported = ""
        self._note: Callable[[str], object] = lambda _: None

    def attend(self, note: Callable[[str], object]) -> None:
        """Call a function of this event loop at every change from now on, too."""
        loop = asyncio.get_running_loop()

        def in_loop(reason: str) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(note, reason)

        self._note = in_loop

    def of(self, source: str) -> Listener:
        """A listener for one of the policies of this process."""

        def take(reason: str) -> None:
            with self._lock:
                self._reasons[source] = reason
                now = next(filter(None, self._reasons.values()), "")
                changed, self._reported = bool(now) != bool(self._reported), now
                if changed:
                    self._send(StorageWait(reason=now[:1000]))
                    self._note(now)

        return take


async def open_writer(
    paths: RunPaths, replica: int, clock: Clock, patience: Patience, reader: asyncio.StreamReader
) -> HistoryWriter:
    """The replica's file of the history list. Raises StorageError.

    The end of the pipe ends the wait for storage: the primary is gone.
    """
    opening = asyncio.create_task(
        asyncio.to_thread(HistoryWriter, paths, f"replica-{replica:04d}", clock, patience), name="open"
    )
    while not opening.done():
        await asyncio.wait({opening}, timeout=LOOK_S)
        if reader.at_eof():
            patience.hurry()
    return opening.result()


async def close_writer(writer: HistoryWriter, patience: Patience, grace_s: float) -> None:
    """Write the last records, if storage takes them within some time."""
    PATIENCE.hurry()
    try:
        async with asyncio.timeout(grace_s):
            await writer.settled()
    except (TimeoutError, StorageError) as error:
        log.error("the last records are not written: %s", error or "no time is left")
    patience.hurry()
    with contextlib.suppress(StorageError):
        writer.close(LOOK_S)
