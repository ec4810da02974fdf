"""Space that a run keeps for its last records, for a disk that is full at its end."""

import contextlib
import logging
import os
from pathlib import Path

log = logging.getLogger(__name__)

RESERVE_BYTES = 16 << 20


class Reserve:
    """A file of allocated, unused blocks. A file system that gives none costs a line in the log."""

    def __init__(self, path: Path, size_bytes: int = RESERVE_BYTES) -> None:
        self._path = path
        try:
            # Readable, too: if the file system allocates nothing (NFSv3, FUSE), the C library does
            # it with reads and writes (posix_fallocate(3)).
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                # A sparse file (`ftruncate`) would have no blocks to give back.
                os.posix_fallocate(descriptor, 0, size_bytes)
            finally:
                os.close(descriptor)
        except OSError as error:
            log.warning("no space is kept for the last records: %s: %s", path, error)
            self.release()

    def release(self) -> None:
        """Give the space back; no-op if that was done."""
        with contextlib.suppress(OSError):
            self._path.unlink()
