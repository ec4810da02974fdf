"""History files that are written in blocks: a crash of a rehearsal need not leave its records.

A run writes every record at once. In a rehearsal, for which that is a moment of virtual time, its
bytes may wait in memory until they are read.
"""

from __future__ import annotations

from pathlib import Path

from aiperf.storage.appended import AppendedFile
from aiperf.storage.patience import Patience

BLOCK_BYTES = 16 << 10


class KeptFiles:
    """The history files of a rehearsal."""

    def __init__(self) -> None:
        self._open: set[KeptFile] = set()

    def create(self, path: Path, root: Path, marker: Path, patience: Patience) -> KeptFile:
        """Create a file, exclusively. Raises FileExistsError, OSError."""
        file = KeptFile(AppendedFile(path, root, marker, patience), self._open)
        self._open.add(file)
        return file

    def flush(self) -> None:
        """Let readers find all that was written."""
        for file in self._open:
            file.flush()


class KeptFile:
    """An `AppendedFile` to which blocks are written."""

    shared = False

    def __init__(self, file: AppendedFile, among: set[KeptFile]) -> None:
        self._file = file
        self._among = among
        self._kept: list[bytes] = []
        self._size = 0

    def append(self, data: bytes) -> None:
        """Write, in a while."""
        self._kept.append(data)
        self._size += len(data)
        if self._size >= BLOCK_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what is kept. Raises OSError."""
        if self._kept:
            self._file.append(b"".join(self._kept))
            self._kept.clear()
            self._size = 0

    def look(self) -> bool:
        """False: no other process touches the file."""
        return False

    def close(self) -> None:
        """Write what is kept and close the file."""
        self.flush()
        self._among.discard(self)
        self._file.close()
