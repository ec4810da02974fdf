"""The keeper of the digest: it enters what the primary hears of trials.

An entry is written after the raw records that it repeats are durable. A digest that cannot be
written costs the agents time, since they read the raw records instead, and the run nothing.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterable

from aiperf.errors import StorageError
from aiperf.records.digest.compiled import over
from aiperf.records.digest.entries import Began, Entry, How
from aiperf.records.digest.writer import DigestWriter
from aiperf.records.history_files import HistoryWriter
from aiperf.run_directory.paths import RunPaths
from aiperf.storage.patience import PATIENCE, Patience
from aiperf.storage.storage_thread import InOrder, MakeOrdered
from aiperf.wire.messages import Job, Started

log = logging.getLogger(__name__)

LOOK_S = 1.0
"""Longest time in which a digest that breaks holds up a job."""


class DigestKeeper:
    """Keeps the digest of one primary; without a writer, all of it is a no-op."""

    def __init__(self, writer: DigestWriter | None = None, history: HistoryWriter | None = None) -> None:
        self._writer = writer
        self._history = history
        self._qualities: dict[int, dict[int, float | None]] = {}
        """Qualities of the trials in progress, by trial and epoch."""

    @property
    def name(self) -> str | None:
        """The name of the digest; None if there is none that agents can use."""
        return self._writer.primary if self._writer is not None and self._writer.broken is None else None

    def in_background(self, thread: MakeOrdered = InOrder) -> None:
        """Write in a thread from now on."""
        if self._writer is not None:
            self._writer.in_background(thread)

    def began(self, replica: int, job: Job, started: Started) -> None:
        """Enter the start of a job."""
        chosen = {name: getattr(started, name) for name in ("architecture", "parent", "morphs", "hyperparameters")}
        asked = {name: getattr(job, name) for name in ("trial", "round", "point", "base", "resumes")}
        self._put(Began(replica=replica, **asked, **chosen))

    def epoch(self, trial: int, epoch: int, quality: float | None) -> None:
        """Note an epoch, which is entered when the trial is over."""
        self._qualities.setdefault(trial, {})[epoch] = quality

    def over(self, trial: int, how: How, kind: str = "", predicted: float | None = None) -> None:
        """Enter the end of a trial."""
        self._put(over(trial, how, kind, predicted, self._qualities.pop(trial, {})))

    async def settled(self) -> None:
        """Wait until agents can read all entries so far, or the digest is broken."""
        if self._writer is None or self._writer.idle:
            return
        done = asyncio.Event()
        self._writer.after(done.set)
        while not done.is_set() and self._writer.broken is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await done.wait()

    def close(self, timeout_s: float) -> None:
        """Write what is left and close the file. Raises nothing."""
        if self._writer is not None:
            self._writer.close(timeout_s)

    def _put(self, entry: Entry) -> None:
        writer, history = self._writer, self._history
        if writer is not None and history is not None:
            history.after(lambda: writer.put(entry))


def open_digest(
    paths: RunPaths, history: HistoryWriter, entries: Iterable[Entry] = (), patience: Patience = PATIENCE
) -> DigestKeeper:
    """The keeper of a new digest with these entries; of none if it cannot be written."""
    try:
        return DigestKeeper(DigestWriter(paths, history.name, entries, patience), history)
    except (OSError, StorageError) as error:
        log.warning("no digest: %s; agents read the raw records", error)
        return DigestKeeper()
