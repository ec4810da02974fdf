"""Logs of a run: they never end a process, and never print a traceback."""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path
from typing import BinaryIO

from aiperf.storage.patience import PATIENCE, with_patience


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
        except OSError:
            self._dropped += 1

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = None
        super().close()
