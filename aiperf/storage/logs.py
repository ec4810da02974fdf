"""Logs of a run: they never end a process, and never print a traceback."""

import contextlib
import logging
import os
import queue
import threading
from pathlib import Path
from typing import BinaryIO

from aiperf.storage.patience import PATIENCE, with_patience

MOST_LINES = 10_000
"""Upper limit for the lines that wait for a thread; further ones are left out."""

LAST_LINES_S = 5.0
"""Longest wait for lines at the end of a process."""

MOST_LOG_BYTES = 1 << 20
"""Upper limit for the bytes of a log at each look at it (`trim_log`); it grows in between."""


def open_log(path: Path) -> BinaryIO:
    """A log to append to, for the output of a child process.

    Raises OSError in a process without patience; else a log that cannot be opened is left out.
    """

    def open_it() -> BinaryIO:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Appending: after `trim_log` an offset of its own would leave a hole of zeros in front of
        # the next line.
        return path.open("ab")

    patient = PATIENCE.seconds > 0
    try:
        return with_patience(open_it, path)
    except OSError:
        if not patient:
            raise
        return Path(os.devnull).open("ab")


def trim_log(path: Path) -> None:
    """Cut the beginning of a log off that has more than `MOST_LOG_BYTES`; its last half stays.

    A framework may print a warning for every step of a training. All writers of a log append to
    it, so that they continue at its new end; a line that comes meanwhile may be lost.
    """
    with contextlib.suppress(OSError):  # no log is worth a training
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND)
        try:
            size = os.fstat(descriptor).st_size
            if size <= MOST_LOG_BYTES:
                return
            end = os.pread(descriptor, MOST_LOG_BYTES // 2, size - MOST_LOG_BYTES // 2)
            kept = end[end.find(b"\n") + 1 :]
            # In place: children have the file open, and would write on into one that was renamed
            # away.
            os.ftruncate(descriptor, 0)
            os.write(descriptor, b"(%d bytes of this log were left out)\n%b" % (size - len(kept), kept))
        finally:
            os.close(descriptor)


class QuietHandler(logging.Handler):
    """Appends lines to a file; lines that cannot be written are counted, and left out."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._descriptor: int | None = None
        # No lock guards these numbers: emitters write only `_refused`, the thread writes only the
        # others.
        self._dropped = 0
        self._refused = 0
        """Lines for which the queue had no room, and those of them that the log names."""
        self._named = 0
        self._lines: queue.Queue[str] | None = None

    def in_background(self) -> None:
        """Write in a thread from here on: a file server that hangs stops only that thread.

        The interpreter does not wait for the thread at its end, but up to `LAST_LINES_S` for the
        lines.
        """
        self._lines = queue.Queue(MOST_LINES)
        threading.Thread(target=self._work, args=(self._lines,), name="log", daemon=True).start()

    @property
    def waiting(self) -> int:
        """Lines that the thread has not taken yet."""
        return self._lines.qsize() if self._lines is not None else 0

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, and before it the number of those that were left out."""
        text = self.format(record)
        if self._lines is None:
            self._write(text)
            return
        try:
            # A log must never stop the event loop that writes to it.
            self._lines.put_nowait(text)
        except queue.Full:
            self._refused += 1

    def _work(self, lines: queue.Queue[str]) -> None:
        while True:
            self._write(lines.get())
            lines.task_done()

    def _write(self, text: str) -> None:
        refused = self._refused  # the other thread may count on
        if dropped := self._dropped + refused - self._named:
            text = f"({dropped} lines of this log could not be written)\n{text}"
        try:
            if self._descriptor is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            os.write(self._descriptor, f"{text}\n".encode(errors="replace"))
            self._dropped, self._named = 0, refused
            if os.fstat(self._descriptor).st_size > MOST_LOG_BYTES:
                trim_log(self._path)
        except OSError:
            self._dropped += 1

    def flush(self) -> None:
        """Wait for the lines that a thread has not written yet, up to `LAST_LINES_S`."""
        lines = self._lines
        if lines is not None:
            # `Queue.join` has no time limit.
            with lines.all_tasks_done:
                lines.all_tasks_done.wait_for(lambda: lines.unfinished_tasks == 0, LAST_LINES_S)

    def close(self) -> None:
        """Close the file; a thread that is inside the file server keeps it."""
        self.flush()
        if self._descriptor is not None and (self._lines is None or self._lines.unfinished_tasks == 0):
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = None
        super().close()
