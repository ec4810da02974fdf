"""Storage that refuses, on the agent's side: reports of waits, opening and closing its file."""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from aiperf.clock import Clock
from aiperf.errors import StorageError
from aiperf.records.history_files import HistoryWriter
from aiperf.run_directory.paths import RunPaths
from aiperf.storage.patience import PATIENCE, Patience, Waits
from aiperf.wire.messages import Message, StorageWait

log = logging.getLogger(__name__)

LOOK_S = 1.0
"""Seconds between two looks for the end of the pipe while the file cannot be made."""


class StorageReports(Waits):
    """The reports to the primary that the replica waits for storage, and that it writes again."""

    def __init__(self, send: Callable[[Message], None]) -> None:
        super().__init__(self._report)
        self.send = send
        self._change: Callable[[str], object] = lambda _: None

    def attend(self, note: Callable[[str], object]) -> None:
        """Call a function of this event loop at every change from now on, in addition.

        Waits begin and end in the threads that write.
        """
        loop = asyncio.get_running_loop()

        def in_loop(reason: str) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(note, reason)

        self._change = in_loop

    def _report(self, reason: str) -> None:
        self.send(StorageWait(reason=reason[:1000]))
        self._change(reason)


async def open_writer(
    paths: RunPaths, replica: int, clock: Clock, patience: Patience, reader: asyncio.StreamReader
) -> HistoryWriter:
    """Open the replica's file of the history list. Raises StorageError.

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
    # Waits for files end at once; records still have the grace.
    PATIENCE.hurry()
    try:
        async with asyncio.timeout(grace_s):
            await writer.settled()
    except (TimeoutError, StorageError) as error:
        log.error("the last records are not written: %s", error or "no time is left")
    patience.hurry()
    with contextlib.suppress(StorageError):
        writer.close(LOOK_S)
