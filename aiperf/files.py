"""The writes of a run below its directory: readers see all of a file or nothing of it.

All of them wait for storage that refuses (`aiperf.storage.patience`): never call them in an event
loop that has other duties.
"""

import contextlib
import errno
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from aiperf.storage.durable import refresh, sync, sync_directory
from aiperf.storage.error_texts import why_not_written
from aiperf.storage.patience import once_more, with_patience


def keep_others_from_writing() -> None:
    """Let no other user write what this process and its children make, whatever the umask.

    Every program that writes into a run directory begins with it: a group that may write there
    could run programs as the owner, by `run.json`.
    """
    # The umask can be read only by setting it: the stricter value covers the moment between.
    os.umask(os.umask(0o077) | 0o022)


def cache_folder() -> Path:
    """AIPerf's folder for what can be made again, by the XDG Base Directory Specification 0.8.

    A variable that is empty, or no absolute path, counts as unset.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    return Path(base if base.startswith("/") else Path.home() / ".cache") / "aiperf"


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """A stream whose content appears at `path` when the block ends (fsync and rename).

    If the block or the file system fails, nothing is left behind and an old file stays. Raises
    OSError at once: a block cannot be repeated (`write_file`).
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        # In the folder of the target, since `rename` works within one file system only.
        with temporary.open("xb") as stream:
            yield stream
            stream.flush()
            sync(stream.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


@contextmanager
def temporary_folder(prefix: str = "aiperf-", within: Path | None = None) -> Iterator[Path]:
    """A folder that is removed at the end of the block. Raises OSError if it cannot be made."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=within))
    try:
        yield folder
    finally:
        remove_folder(folder)


def remove_folder(folder: Path) -> None:
    """Remove a folder with all that can be removed of it, whatever interrupts the removal."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except BaseException:  # Ctrl-C: begun anew before it goes on
        shutil.rmtree(folder, ignore_errors=True)
        raise


def write_file(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file, whole or not at all, with a function that may be called again.

    Raises OSError; then nothing is left behind.
    """

    def attempt() -> None:
        with atomic_file(path) as stream:
            write(stream)

    with_patience(attempt, path)


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file, whole or not at all. Raises OSError; then nothing is left behind."""
    write_file(path, lambda stream: stream.write(data))


def append(path: Path, data: bytes) -> None:
    """Add to the end of a file of this process, all or nothing. Raises OSError."""
    with_patience(lambda: append_once(path, data), path)


def append_once(path: Path, data: bytes) -> None:
    """Add to the end of a file, all or nothing, without patience. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        size = os.fstat(descriptor).st_size
        try:
            if os.write(descriptor, data) != len(data):
                raise OSError(errno.ENOSPC, "No space left on device (a short write)")
        except OSError:
            # The next line would go on where a full disk has cut this one off.
            os.ftruncate(descriptor, size)
            raise
    finally:
        os.close(descriptor)


def read(path: Path) -> bytes:
    """The content of a file. Raises OSError."""
    return with_patience(path.read_bytes, path)


def make_folder(path: Path) -> None:
    """Make a folder and those above it; no-op if it is there. Raises OSError."""
    with_patience(lambda: path.mkdir(parents=True, exist_ok=True), path)


def remove(path: Path) -> None:
    """Remove a file; no-op if there is none. Raises OSError."""
    with_patience(lambda: path.unlink(missing_ok=True), path)


def move(path: Path, target: Path) -> None:
    """Rename a file, in place of another one. Raises OSError, FileNotFoundError if it is gone."""
    with_patience(lambda: path.replace(target), path)


def remove_temporaries(folder: Path) -> int:
    """Remove the files of killed writers below a folder that is not in use; return their number."""
    found, entries = 0, list[os.DirEntry[str]]()
    with contextlib.suppress(OSError):
        # They may be those of ranks on other nodes, which this node's listing does not show yet.
        refresh(folder)
    with contextlib.suppress(OSError):
        entries = once_more(lambda: _listed(folder))
    for entry in entries:
        # One that stays, or cannot be looked at, must not keep the others.
        with contextlib.suppress(OSError):
            path = Path(entry.path)
            if once_more(lambda entry=entry: entry.is_dir(follow_symlinks=False)):  # type: ignore[misc]
                found += remove_temporaries(path)
            elif path.match(".*.tmp"):
                once_more(lambda path=path: path.unlink(missing_ok=True))  # type: ignore[misc]
                found += 1
    return found


def _listed(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return list(entries)


def can_write(folder: Path) -> bool:
    """True if a file can be written below a folder now, and removed again."""
    return why_unwritable(folder) is None


def why_unwritable(folder: Path) -> str | None:
    """The reason why no file can be written below a folder now; None if one can."""
    probe = folder / f".probe.{secrets.token_hex(6)}.tmp"
    try:
        append_once(probe, b"\n" * PROBE_BYTES)
    except OSError as error:
        return why_not_written(folder, error)
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()
    return None


PROBE_BYTES = 4096
