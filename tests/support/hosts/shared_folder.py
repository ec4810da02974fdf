"""A shared folder as a node sees it over NFS: a client with caches, by FUSE.

`python shared_folder.py REAL MOUNT CLOCK` shows the folder REAL below MOUNT, in the background,
until it is unmounted. Names, missing names, listings and attributes are kept for `KEPT_S`, as
Linux's client of NFS does (nfs(5): acregmax, lookupcache=all). A file is asked for anew when it is
opened, and own changes are seen at once. An open file that another node has removed is stale. The
client's time is what CLOCK holds, in seconds: it passes when a test says so.
"""

import errno
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

KEPT_S = 30.0

UTIME_NOW = (1 << 30) - 1
"""Nanoseconds that stand for the server's time (utimensat(2))."""

FIELDS = ("st_mode", "st_ino", "st_nlink", "st_uid", "st_gid", "st_size", "st_blocks", "st_blksize")
TIMES = ("st_atime", "st_mtime", "st_ctime")


class Cache:
    """Answers of the server: attributes of names, or that a name is missing, and listings."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._kept: dict[tuple[str, str], tuple[float, object]] = {}

    def get(self, kind: str, path: str, ask: Callable[[], T]) -> T:
        """The kept answer, or a new one. Raises OSError as the server did."""
        kept = self._kept.get((kind, path))
        if kept is None or self._now_s() - kept[0] > KEPT_S:
            answer: object
            try:
                answer = ask()
            except FileNotFoundError as error:
                answer = error
            kept = self._kept[kind, path] = self._now_s(), answer
        if isinstance(kept[1], OSError):
            raise FileNotFoundError(*kept[1].args)
        return kept[1]  # type: ignore[return-value]

    def forget(self, path: str) -> None:
        """Forget a name."""
        self._kept.pop(("names", path), None)

    def changed(self, *paths: str) -> None:
        """Forget folders in which this node has changed names: the server sends attributes."""
        for folder in {str(Path(path).parent) for path in paths}:
            self._kept.pop(("lists", folder), None)
            for kind, name in [key for key in self._kept if str(Path(key[1]).parent) == folder or key[1] == folder]:
                self._kept.pop((kind, name))


def _facts(found: os.stat_result) -> dict[str, int]:
    facts = {name: int(getattr(found, name)) for name in FIELDS}
    return facts | {name: int(getattr(found, f"{name}_ns")) for name in TIMES}


class Client:
    """The operations of one mount (fuse(4), libfuse's high-level interface)."""

    use_ns = True

    def __init__(self, real: Path, clock: Path) -> None:
        self._real = str(real)
        self._cache = Cache(lambda: float(clock.read_text()))

    def _at(self, path: str) -> Path:
        return Path(self._real + path)

    def init_with_config(self, _: object, config: Any) -> None:
        """Let the kernel keep nothing, and show the inodes of the server."""
        config.entry_timeout = config.attr_timeout = config.negative_timeout = 0.0
        config.use_ino = 1

    # What is kept.

    def getattr(self, path: str, handle: int | None = None) -> dict[str, int]:
        if handle is not None:
            self._check(handle)
        return self._cache.get("names", path, lambda: _facts(self._at(path).lstat()))

    def readdir(self, path: str, _: int) -> list[tuple[str, dict[str, int], int]]:
        return self._cache.get("lists", path, lambda: self._list(path))

    def _list(self, path: str) -> list[tuple[str, dict[str, int], int]]:
        with os.scandir(self._at(path)) as entries:
            found = [(each.name, each.is_dir(follow_symlinks=False), each.inode()) for each in entries]
        # Kinds and inodes alone count here.
        return [
            (name, {"st_mode": stat.S_IFDIR if folder else stat.S_IFREG, "st_ino": inode}, 0)
            for name, folder, inode in [(".", True, 1), ("..", True, 1), *found]
        ]

    # Files.

    def open(self, path: str, flags: int) -> int:
        self._cache.forget(path)
        # The client of NFS knows the end of a file itself, and writes there.
        return os.open(self._at(path), flags & ~os.O_APPEND)

    def create(self, path: str, mode: int) -> int:
        try:
            return os.open(self._at(path), os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
        finally:
            self._cache.changed(path)

    def read(self, _: str, size: int, offset: int, handle: int) -> bytes:
        self._check(handle)
        return os.pread(handle, size, offset)

    def write(self, path: str, data: bytes, offset: int, handle: int) -> int:
        self._check(handle)
        self._cache.forget(path)
        return os.pwrite(handle, data, offset)

    def fsync(self, _: str, __: int, handle: int) -> int:
        self._check(handle)
        os.fsync(handle)
        return 0

    def truncate(self, path: str, length: int, handle: int | None = None) -> int:
        self._cache.forget(path)
        os.truncate(self._at(path) if handle is None else handle, length)
        return 0

    def release(self, _: str, handle: int) -> int:
        os.close(handle)
        return 0

    @staticmethod
    def _check(handle: int) -> None:
        # Files that this node has removed keep a hidden name while they are open, as on NFS.
        if os.fstat(handle).st_nlink == 0:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    # Names.

    def mkdir(self, path: str, mode: int) -> int:
        return self._change(lambda: self._at(path).mkdir(mode), path)

    def rmdir(self, path: str) -> int:
        return self._change(lambda: self._at(path).rmdir(), path)

    def unlink(self, path: str) -> int:
        return self._change(lambda: self._at(path).unlink(), path)

    def rename(self, old: str, new: str) -> int:
        return self._change(lambda: self._at(old).replace(self._at(new)), old, new)

    def link(self, target: str, source: str) -> int:
        return self._change(lambda: os.link(self._at(source), self._at(target)), target, source)

    def symlink(self, target: str, source: str) -> int:
        return self._change(lambda: self._at(target).symlink_to(source), target)

    def chmod(self, path: str, mode: int) -> int:
        return self._change(lambda: self._at(path).chmod(mode), path)

    def utimens(self, path: str, times: tuple[int, int] | None = None) -> int:
        if times is None or times[1] == UTIME_NOW:
            return self._change(lambda: os.utime(self._at(path)), path)
        return self._change(lambda: os.utime(self._at(path), ns=times), path)

    def _change(self, change: Callable[[], object], *paths: str) -> int:
        try:
            change()
        finally:
            self._cache.changed(*paths)
        return 0

    def readlink(self, path: str) -> str:
        return str(self._at(path).readlink())

    def statfs(self, path: str) -> dict[str, int]:
        found = os.statvfs(self._at(path))
        return {name: getattr(found, name) for name in dir(found) if name.startswith("f_")}


if __name__ == "__main__":
    import mfusepy

    mfusepy.FUSE(Client(Path(sys.argv[1]), Path(sys.argv[3])), sys.argv[2], nothreads=True)
