"""The writer of a digest: segments that are appended to, and that never change once they are full.

One process writes a digest, in a folder named after its file of the history list.
"""

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable

from aiperf.errors import StorageError
from aiperf.records.digest.entries import SEGMENT_ENTRIES, Entry, Opened, encode_entry
from aiperf.run_directory.paths import RunPaths, digest_segment
from aiperf.storage.appended import AppendedFile
from aiperf.storage.patience import PATIENCE, Patience
from aiperf.storage.storage_thread import InOrder, MakeOrdered, Ordered

log = logging.getLogger(__name__)


class DigestWriter:
    """Appends entries, those that wait together with one write and one fsync.

    The first entry names the primary. Entries are written at once, or in a thread once
    `in_background` is called. Raises OSError or StorageError if the first cannot be written.
    """

    def __init__(
        self, paths: RunPaths, primary: str, entries: Iterable[Entry] = (), patience: Patience = PATIENCE
    ) -> None:
        self.primary = primary
        self._paths = paths
        self._patience = patience
        self._waiting = deque[bytes]()
        self._written = 0
        self._due = False
        """True while a write is due that has not begun."""
        self._file: AppendedFile | None = None
        self._thread: Ordered | None = None
        self.broken: Exception | None = None
        """The error after which nothing more is written."""
        self._waiting.extend(map(encode_entry, (Opened(primary=primary), *entries)))
        self._write()

    def in_background(self, thread: MakeOrdered = InOrder) -> None:
        """Write in a thread from now on."""
        self._thread = thread(asyncio.get_running_loop(), self._break)

    def put(self, entry: Entry) -> None:
        """Append an entry; one that cannot be written breaks the digest, and nothing else."""
        if self.broken is not None:
            return
        self._waiting.append(encode_entry(entry))
        if self._thread is not None:
            if not self._due:
                self._due = True
                self._thread.put(self._write)
            return
        try:
            self._write()
        except (OSError, StorageError) as error:
            self._break(error)

    def after(self, callback: Callable[[], object]) -> None:
        """Call back when all entries so far are readable by others; never if one fails."""
        if self._thread is None:
            callback()
        elif self.broken is None:
            self._thread.after(callback)

    @property
    def idle(self) -> bool:
        """True if all entries so far are readable by others."""
        return self._thread is None or self._thread.idle

    def close(self, timeout_s: float) -> None:
        """Write what is left, for this long at most, and close the file. Raises nothing."""
        if self._thread is not None and self.broken is None:
            try:
                if not self._thread.drain(min(timeout_s, threading.TIMEOUT_MAX)):
                    self._break(TimeoutError("the last entries are missing"))
            except (OSError, StorageError) as error:
                self._break(error)
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()

    def _break(self, error: Exception) -> None:
        self.broken = error
        log.error("the digest %s is broken: %s", self.primary, error)

    def _write(self) -> None:
        """Write all that waits."""
        self._due = False  # first: an entry that comes now is in this group, or in the next one
        while self._waiting:
            room = SEGMENT_ENTRIES - self._written % SEGMENT_ENTRIES
            lines = [self._waiting.popleft() for _ in range(min(room, len(self._waiting)))]
            self._segment().append(b"".join(lines))
            self._written += len(lines)

    def _segment(self) -> AppendedFile:
        """The segment for the next entry."""
        if self._file is None or self._written % SEGMENT_ENTRIES == 0:
            if self._file is not None:
                self._file.close()
            path = digest_segment(self._paths, self.primary, self._written // SEGMENT_ENTRIES + 1)
            self._file = AppendedFile(path, self._paths.root, self._paths.run, self._patience)
        else:
            # Before each group: a segment that was deleted would end every reader's trust in the
            # digest.
            self._file.look()
        return self._file
