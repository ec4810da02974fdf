"""The file operations of claims, on storage that answers at once, or that refuses for a while."""

import contextlib
import errno
import os
from functools import partial
from pathlib import Path

from aiperf.storage.durable import has_no_links, sync_directory
from aiperf.storage.patience import Patience

Stamp = tuple[int, ...]
"""Changes whenever a file is written or touched."""


class Disk:
    """The file operations of a claim; each is one step, between which other takers may act.

    Raises OSError.
    """

    def names(self, folder: Path) -> list[str]:
        """The names in a folder; none if it does not exist."""
        try:
            return [path.name for path in folder.iterdir()]
        except FileNotFoundError:
            return []

    def read(self, path: Path) -> tuple[bytes, Stamp] | None:
        """Content and stamp of a file; None if it does not exist.

        It is opened each time: only then network file systems ask the server for news.
        """
        try:
            with path.open("rb") as stream:
                facts = os.fstat(stream.fileno())
                return stream.read(), (facts.st_mtime_ns, facts.st_ino, facts.st_size)
        except FileNotFoundError:
            return None

    def write(self, path: Path, data: bytes) -> None:
        """Write a new file durably; one that cannot be written whole is removed again."""
        path.parent.mkdir(parents=True, exist_ok=True)
        # Unbuffered: a short write shows here, and closing the file writes nothing more.
        with path.open("xb", buffering=0) as stream:
            try:
                if stream.write(data) != len(data):
                    raise OSError(errno.ENOSPC, "No space left on device (a short write)", str(path))
                os.fsync(stream.fileno())
            except OSError:
                with contextlib.suppress(OSError):
                    path.unlink()
                raise

    def link(self, path: Path, target: Path) -> None:
        """Give a file a second name, which must be new."""
        os.link(path, target)
        sync_directory(target.parent)

    def links(self, path: Path) -> int:
        """The number of names of a file; 0 if it does not exist."""
        try:
            return path.stat().st_nlink
        except FileNotFoundError:
            return 0

    def replace(self, path: Path, target: Path) -> None:
        """Rename a file over another."""
        path.replace(target)
        sync_directory(target.parent)

    def touch(self, path: Path) -> None:
        """Change the time of a file, by the file server's clock."""
        os.utime(path)

    def remove(self, path: Path) -> None:
        """Remove a file, if it is there."""
        path.unlink(missing_ok=True)


class PatientDisk(Disk):
    """File operations that are each repeated while their error may pass.

    One that has been done although its error says otherwise is then done twice, which `Claim`
    allows for: links may be made and reported as failed.
    """

    def __init__(self, patience: Patience) -> None:
        self._patience = patience

    def names(self, folder: Path) -> list[str]:
        """List names as `Disk.names` does, with patience."""
        return self._patience.attempt(partial(super().names, folder), folder)

    def read(self, path: Path) -> tuple[bytes, Stamp] | None:
        """Read as `Disk.read` does, with patience."""
        return self._patience.attempt(partial(super().read, path), path)

    def write(self, path: Path, data: bytes) -> None:
        """Write as `Disk.write` does, with patience."""
        self._patience.attempt(partial(super().write, path, data), path)

    def link(self, path: Path, target: Path) -> None:
        """Link as `Disk.link` does, without a wait if there are no links: there is another way."""
        link = super().link

        def attempt() -> OSError | None:
            try:
                link(path, target)
            except OSError as error:
                if has_no_links(error):
                    return error
                raise
            return None

        if (refused := self._patience.attempt(attempt, target)) is not None:
            raise refused

    def links(self, path: Path) -> int:
        """Count links as `Disk.links` does, with patience."""
        return self._patience.attempt(partial(super().links, path), path)

    def replace(self, path: Path, target: Path) -> None:
        """Replace as `Disk.replace` does, with patience."""
        self._patience.attempt(partial(super().replace, path, target), target)

    def touch(self, path: Path) -> None:
        """Touch as `Disk.touch` does, with patience."""
        self._patience.attempt(partial(super().touch, path), path)

    def remove(self, path: Path) -> None:
        """Remove as `Disk.remove` does, with patience."""
        self._patience.attempt(partial(super().remove, path), path)
