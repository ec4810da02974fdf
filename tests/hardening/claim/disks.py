"""A file system in memory with steps, and a machine on which takers are processes."""

import errno
from dataclasses import dataclass, field
from pathlib import Path

from aiperf.run_directory.disk import Disk, Stamp
from aiperf.run_directory.holder import Holder, Machine
from tests.hardening.claim.stage import Stage, Taker


@dataclass
class File:
    """A file: its content, its time, and how many names it has."""

    data: bytes
    time: int = 0
    names: int = 1


@dataclass
class Memory:
    """The files of a shared file system."""

    files: dict[str, File] = field(default_factory=dict)
    changes: int = 0

    def snapshot(self) -> tuple[object, ...]:
        """All that others can see, without the temporary files of takers."""
        found = sorted((name, file.data, file.time) for name, file in self.files.items() if not name.startswith("."))
        return tuple(found)


class MemoryDisk(Disk):
    """The disk as one taker sees it.

    With `lies`, links are made and reported as failed, as NFS may. The first `old_names` looks at
    the folder give what was there at the start, as caches of directories may.
    """

    def __init__(self, memory: Memory, taker: Taker | None = None, lies: bool = False, old_names: int = 0) -> None:
        self._memory, self._taker, self._lies = memory, taker, lies
        self._old_names, self._at_start = old_names, list(memory.files)

    def _step(self) -> None:
        if self._taker is not None:
            self._taker.stop_here()

    def _see(self, result: object) -> None:
        if self._taker is not None:
            self._taker.seen.append(result)

    def names(self, folder: Path) -> list[str]:
        self._step()
        self._old_names -= 1
        found = self._at_start if self._old_names >= 0 else sorted(self._memory.files)
        self._see(tuple(name for name in found if not name.startswith(".")))
        return list(found)

    def read(self, path: Path) -> tuple[bytes, Stamp] | None:
        self._step()
        file = self._memory.files.get(path.name)
        found = (file.data, (file.time,)) if file is not None else None
        self._see(found)
        return found

    def write(self, path: Path, data: bytes) -> None:
        if path.name in self._memory.files:
            raise FileExistsError(errno.EEXIST, path.name)
        self._memory.files[path.name] = File(data)

    def link(self, path: Path, target: Path) -> None:
        self._step()
        files = self._memory.files
        if target.name in files:
            self._see("exists")
            raise FileExistsError(errno.EEXIST, target.name)
        files[target.name] = files[path.name]
        files[path.name].names += 1
        self._see("linked")
        if self._lies:
            raise FileExistsError(errno.EEXIST, target.name)

    def links(self, path: Path) -> int:
        return self._memory.files[path.name].names if path.name in self._memory.files else 0

    def replace(self, path: Path, target: Path) -> None:
        self._step()
        self._memory.files[target.name] = self._memory.files.pop(path.name)
        self._see("replaced")

    def touch(self, path: Path) -> None:
        self._step()
        self._memory.changes += 1
        self._memory.files[path.name].time = self._memory.changes
        self._see("touched")

    def remove(self, path: Path) -> None:
        if (file := self._memory.files.pop(path.name, None)) is not None:
            file.names -= 1


class FakeMachine(Machine):
    """Takers as processes; `sees` says which of them share its process ids."""

    def __init__(self, stage: Stage, taker: Taker | None, place: int = 0) -> None:
        super().__init__()
        self._stage, self._taker = stage, taker
        self.namespaces = str(place)

    def describe(self, token: str, now_ms: int, alone: bool) -> Holder:
        number = self._taker.number if self._taker is not None else 99
        return Holder(
            token=token, boot=self.boot, namespaces=self.namespaces, pid=100 + number, started_ticks=1, alone=alone
        )

    def lives(self, holder: Holder) -> bool | None:
        if not self.is_here(holder):
            return None
        return any(taker.alive and taker.number == holder.pid - 100 for taker in self._stage.takers)
