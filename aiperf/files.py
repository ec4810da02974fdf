"""Writing files on a shared file system so that readers see all of them or nothing."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def keep_others_from_writing() -> None:
    """Let no other user write what this process and its children make, whatever the umask.

    Every program that writes into a run directory begins with it: a group that may write there
    could run programs as the owner, by `run.json`.
    """
    os.umask(os.umask(0o077) | 0o022)


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """A stream whose content appears at `path` when the block ends (fsync and rename).

    If the block or the file system fails, nothing is left behind and an old file stays. Raises
    OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        with temporary.open("xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file, whole or not at all. Raises OSError; then nothing is left behind."""
    with atomic_file(path) as stream:
        stream.write(data)


def remove_temporaries(folder: Path) -> int:
    """Remove the files of killed writers below a folder that is not in use; return their number."""
    found = 0
    for file in folder.rglob(".*.tmp"):
        file.unlink(missing_ok=True)
        found += 1
    return found


def sync_directory(path: Path) -> None:
    """Make new names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError:
        pass  # some network file systems refuse fsync on directories; the rename is already visible
    finally:
        os.close(descriptor)
