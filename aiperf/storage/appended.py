"""A file that one process appends to: each append is durable and whole, or undone.

The file keeps its name while the process lives: one that is deleted or replaced is written again
from the descriptor, which still has all of it.
"""

import contextlib
import errno
import logging
import os
import secrets
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Protocol

from aiperf.errors import StorageError
from aiperf.storage.durable import publish, sync, sync_directory
from aiperf.storage.patience import Patience, may_pass

log = logging.getLogger(__name__)

BLOCK_BYTES = 1 << 20


# A full disk or quota says nothing against the descriptor.
_OF_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})


class Appendable(Protocol):
    """A file that one process appends to, each time durably."""

    shared: bool
    """True if others can delete it or replace it, so that it needs looks."""

    def append(self, data: bytes) -> None:
        """Write at the end. Raises OSError, StorageError."""

    def look(self) -> bool:
        """Restore the file if it is no longer under its name; True if it had to be."""

    def close(self) -> None:
        """Close the file; further appends fail."""


CreateFile = Callable[[Path, Path, Path, Patience], Appendable]
"""Creates a file exclusively: its path, the run directory, and a file of that (`check_root`)."""


class AppendedFile:
    """A file that is created exclusively. Its methods are for one thread at a time.

    Raises FileExistsError if the name is taken, and OSError after `patience`.
    """

    shared = True

    def __init__(self, path: Path, root: Path, marker: Path, patience: Patience) -> None:
        self._descriptor = -1  # for `__del__`, if anything below raises
        self.path = path
        self._name = str(path)
        self._root = root
        self._marker = marker if patience.attempt(marker.exists, marker) else root
        self._patience = patience
        self._good_bytes = 0
        self._torn = False
        """True while bytes after the last good one may be on disk."""
        self._descriptor = patience.attempt(self._create, path)

    def _create(self) -> int:
        # Before `mkdir`: in a run directory that was moved away it would make a new folder, and the
        # writer would not notice that its run is elsewhere.
        self._check_root()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # O_APPEND, because a descriptor with an offset of its own would leave a hole of zeros after
        # `_cut`. It does not make writers of several nodes safe: NFS only imitates it (open(2)).
        # Readable, because `_restore` copies the file from this descriptor.
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        # `fsync` of a file does not make its name durable (fsync(2)).
        sync_directory(self.path.parent)
        return descriptor

    def append(self, data: bytes) -> None:
        """One write and one fsync. Raises OSError after the patience, StorageError as `look`."""
        self._patience.attempt(lambda: self._append(data), self.path)
        self._good_bytes += len(data)

    def _append(self, data: bytes) -> None:
        try:
            # Again: the cut right after an append that failed may have failed as well.
            self._cut()
            # Before the write: one that fails may have written a part.
            self._torn = True
            # A full disk may show as a short write first (write(2)).
            if os.write(self._descriptor, data) != len(data):
                raise OSError(errno.ENOSPC, "No space left on device (a short write)")
            sync(self._descriptor)
            self._torn = False
        except OSError as error:
            # After a failed `fsync` Linux may take pages for clean that never reached the disk, so
            # that the next `fsync` succeeds (PostgreSQL's wiki, Fsync Errors). The bytes are cut
            # off and written again.
            with contextlib.suppress(OSError):
                self._cut()
            self._check_root()
            self._reopen_after(error)
            raise

    def _cut(self) -> None:
        """Undo what an append that failed has left."""
        if self._torn:
            os.ftruncate(self._descriptor, self._good_bytes)
            self._torn = False

    def _reopen_after(self, error: OSError) -> None:
        """Let go of a descriptor that its file server may have forgotten. Raises StorageError."""
        if self._descriptor < 0:
            # As Python's own files do: no error of storage, which would be waited for.
            raise ValueError(f"{self.path} is closed")
        if error.errno == errno.ESTALE:
            self._reopen()
        elif may_pass(error) and error.errno not in _OF_SPACE:
            # An evicted client of Lustre, a new daemon of FUSE, a brick of Gluster:
            # their old descriptors fail for ever, each with an error of its own.
            with contextlib.suppress(OSError):
                there = self.path.stat()
                # A file of that name that is another one is for `look`, which keeps it.
                if not self._answers() or os.path.samestat(os.fstat(self._descriptor), there):
                    self._reopen()

    def _answers(self) -> bool:
        try:
            os.fstat(self._descriptor)
        except OSError:
            return False
        return True

    def _reopen(self) -> None:
        """Open the file again after a restart of its server. Raises StorageError if it is gone."""
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND)
        except FileNotFoundError:
            raise StorageError([f"{self.path} was deleted, and cannot be read back"]) from None
        if os.fstat(descriptor).st_size < self._good_bytes:
            os.close(descriptor)
            raise StorageError([f"{self.path} has lost records that were written"])
        os.close(self._descriptor)
        # The server may have kept a part of what was under way: it is cut off before the next
        # append.
        self._descriptor, self._torn = descriptor, True

    def look(self) -> bool:
        """Restore the file if it is no longer under its name; True if it had to be.

        Raises StorageError if the run directory is gone or the content cannot be read back, and
        OSError as an append does.
        """
        return self._patience.attempt(self._look, self.path)

    def _look(self) -> bool:
        try:
            own = os.fstat(self._descriptor)
        except OSError as error:
            self._reopen_after(error)
            raise
        try:
            there = os.stat(self._name)  # noqa: PTH116  millions of looks: pathlib takes as long again
        except (FileNotFoundError, NotADirectoryError):
            # A run directory that was moved away took this file along: writing it anew under the
            # old path would make a run directory of one file.
            self._check_root()
            self._restore("deleted")
            return True
        if (there.st_dev, there.st_ino) == (own.st_dev, own.st_ino):
            return False
        if there.st_ino == own.st_ino:  # the same file by another mount
            self._reopen()
            return False
        # The other file is kept under another name: it may be another program's only copy.
        self.path.replace(self.path.with_name(f"{self.path.name}.{secrets.token_hex(3)}.foreign"))
        self._restore("replaced")
        return True

    def _restore(self, how: str) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_name(f".{self.path.name}.{secrets.token_hex(6)}.tmp")
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        try:
            self._copy_to(descriptor)
            sync(descriptor)
            publish(temporary, self.path)
        except BaseException:
            os.close(descriptor)
            raise
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()
        sync_directory(self.path.parent)
        # Not before: until the copy is durable, the old descriptor is the only way to the records.
        os.close(self._descriptor)
        self._descriptor, self._torn = descriptor, False
        log.error("%s was %s while the run works; it is written again, with all of its records", self.path, how)

    def _copy_to(self, descriptor: int) -> None:
        done = 0
        while done < self._good_bytes:
            data = os.pread(self._descriptor, min(BLOCK_BYTES, self._good_bytes - done), done)
            if not data:
                raise StorageError([f"{self.path} was deleted, and cannot be read back"])
            if os.write(descriptor, data) != len(data):
                raise OSError(errno.ENOSPC, "No space left on device (a short write)")
            done += len(data)

    def _check_root(self) -> None:
        check_root(self._root, self._marker)

    def close(self) -> None:
        """Close the file; further appends fail."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        """Give the descriptor of a forgotten file back, as Python's own files do."""
        with contextlib.suppress(OSError):
            self.close()


def check_root(root: Path, marker: Path) -> None:
    """Raise StorageError if a run directory was moved or removed.

    `marker` is a file of it that is written once: a process that makes one of its folders
    again does not make that file. Raises OSError, which may pass, while the file system of the run
    is not mounted: an empty folder is in its place then.
    """
    try:
        marker.stat()
    except (FileNotFoundError, NotADirectoryError):
        mount = _mount_of(root)
        if not mount.is_mount():
            raise OSError(errno.ENODEV, "is not mounted", str(mount)) from None
        raise StorageError([f"the run directory {root} is no longer there: it was moved or removed"]) from None
    except OSError:
        return  # it refuses, which may pass
    _mount_of(root)  # while it is there


@cache
def _mount_of(root: Path) -> Path:
    """The folder on which the file system of a run is mounted, as of the first question."""
    path = root.resolve()
    return next(folder for folder in (path, *path.parents) if folder.is_mount())
