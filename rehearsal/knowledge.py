"""The knowledge that all planners of a rehearsal share."""

from __future__ import annotations

from aiperf.run_directory.paths import RunPaths
from rehearsal.virtual.files import KeptFiles
from replica.search.knowledge import Knowledge


class SharedKnowledge(Knowledge):
    """Reads the digest only after it was written: thousands of planners look at it every minute."""

    def __init__(self, paths: RunPaths, files: KeptFiles) -> None:
        super().__init__(paths)
        self._files = files
        self._stale = True

    def note_write(self) -> None:
        """Note that the digest was written."""
        self._stale = True

    def follow(self, digest: str | None) -> None:
        """Read a digest from now on; None: the raw records."""
        self._stale = self._stale or digest != self.digest
        super().follow(digest)

    def read(self) -> None:
        """Take in what is new. Raises OSError."""
        if self.digest is None:
            self._files.flush()
        elif not self._stale:
            return
        super().read()
        self._stale = False
