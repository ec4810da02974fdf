"""Files and their names in directories that outlive a crash of the machine."""

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from aiperf.storage.patience import once_more

# A context variable reaches the writers below without a parameter on the way, and in no other task
# of the process.
_volatile = ContextVar("volatile", default=False)


def sync(descriptor: int) -> None:
    """Flush a file to the device. Raises OSError."""
    if not _volatile.get():
        os.fsync(descriptor)


@contextmanager
def volatile() -> Iterator[None]:
    """Write without `sync` in this context: what a crash of the machine takes can be made again.

    A process that dies loses nothing that it wrote.
    """
    token = _volatile.set(True)
    try:
        yield
    finally:
        _volatile.reset(token)


ANSWERS_OF_LINKS = frozenset({errno.EEXIST, errno.ENOENT, errno.ENOSPC, errno.EDQUOT, errno.EIO})
"""Errors of a hard link that say nothing against links themselves."""


def has_no_links(error: OSError) -> bool:
    """True if a link failed in a way that leaves it open whether the file system makes any.

    FAT, FUSE, BeeGFS, SMB and others refuse links with an error of their own each: EPERM, EXDEV,
    ENOSYS, EMLINK, 524.
    """
    return error.errno not in ANSWERS_OF_LINKS


def publish(path: Path, name: Path) -> None:
    """Move a file that is written to its name, which must be new.

    Where the file system makes no hard links others may see the name without content for a moment.
    Raises FileExistsError, OSError.
    """
    try:
        # A link fails if the name is taken; `rename` would replace what is there (rename(2)).
        os.link(path, name)
    except OSError as error:
        if not has_no_links(error):
            raise
        # Exclusive creation decides who has the name, and the content follows.
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
        path.replace(name)
        return
    with contextlib.suppress(OSError):
        path.unlink()


def refresh(folder: Path) -> None:
    """Have this node list a folder anew, which it may otherwise show as it was a minute ago.

    The client of a network file system keeps listings and missing names (nfs(5), `acdirmax`,
    `lookupcache`; FUSE, `negative_timeout`). A name that the node makes itself ends that: the
    server's answer shows that the folder has changed. Raises OSError.
    """
    look = folder / f".look.{secrets.token_hex(6)}.tmp"
    look.touch(exist_ok=False)
    once_more(lambda: look.unlink(missing_ok=True))


def sync_directory(path: Path) -> None:
    """Make new names in a directory durable.

    An error is of no consequence: some network file systems refuse fsync on directories, and the
    name is visible already.
    """
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            sync(descriptor)
        finally:
            os.close(descriptor)
