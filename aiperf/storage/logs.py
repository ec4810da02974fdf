"""Logs of a run: they never end a process, and never print a traceback."""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path
from typing import BinaryIO

from aiperf.storage.patience import PATIENCE, with_patience

MOST_LOG_BYTES = 1 << 20
"""Of a log, but for what is written between two looks at it (`trim_log`)."""


def open_log(path: Path) -> BinaryIO:
    """A log to append to, for the output of a child process.

    Raises OSError in a process without patience; else a log that cannot be opened is left out.
    """

    def open_it() -> BinaryIO:
        path.parent.mkdir(parents=True, exist_ok=True)
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

    A framework may print a warning for every step of a training. All who write to a log append to
    it, so that they go on at its new end; a line that comes meanwhile may be lost.
    """
    with contextlib.suppress(OSError):  # no log is worth a training
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND)
        try:
            size = os.fstat(descriptor).st_size
            if size <= MOST_LOG_BYTES:
                return
            end = os.pread(descriptor, MOST_LOG_BYTES // 2, size - MOST_LOG_BYTES // 2)
            kept = end[end.find(b"\n") + 1 :]
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
        self._dropped = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, and before it the number of those that were left out."""
        try:
            text = self.format(record)
            if self._dropped:
                text = f"({self._dropped} lines of this log could not be written)\n{text}"
            if self._descriptor is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            os.write(self._descriptor, f"{text}\n".encode(errors="replace"))
            self._dropped = 0
            trim_log(self._path)
        except OSError:
            self._dropped += 1

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = None
        super().close()
