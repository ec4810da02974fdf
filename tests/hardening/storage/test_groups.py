"""Records of one writer that are written together: one fsync, and all of a group or nothing."""

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from aiperf.errors import StorageError
from aiperf.records.bodies import PhaseBegan
from aiperf.records.history_files import HistoryReader, HistoryWriter
from aiperf.run_directory.paths import RunPaths
from tests.support.hand_made import ManualClock

GROUP = 10


def append(writer: HistoryWriter, number: int) -> None:
    writer.append(PhaseBegan(replica=number, trial=None, phase="idle"))


def sequences(paths: RunPaths) -> list[int]:
    batch = HistoryReader(paths).read_new()
    assert batch.damages == ()
    return [record.sequence for record in batch.records]


class SlowDisk:
    """Holds the first fsync until `release`, and counts those that are done."""

    def __init__(self) -> None:
        self.syncs = 0
        self.writes = 0
        self.waits, self.release = threading.Event(), threading.Event()
        self._fsync, self._write = os.fsync, os.write

    def fsync(self, descriptor: int) -> None:
        self.waits.set()
        self.release.wait()
        self._fsync(descriptor)
        self.syncs += 1

    def write(self, descriptor: int, data: bytes) -> int:
        self.writes += 1
        return self._write(descriptor, data)


def with_writer(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    scenario: Callable[[HistoryWriter, SlowDisk], Coroutine[Any, Any, None]],
) -> SlowDisk:
    """Run a scenario with a writer in the background whose thread waits for its first fsync."""
    paths, disk = RunPaths(root), SlowDisk()
    paths.create()

    async def whole() -> None:
        with HistoryWriter(paths, "primary", ManualClock()) as writer:
            monkeypatch.setattr(os, "fsync", disk.fsync)
            monkeypatch.setattr(os, "write", disk.write)
            try:
                await scenario(writer, disk)
            finally:
                disk.release.set()

    asyncio.run(whole())
    return disk


def test_records_that_come_during_a_write_are_one_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    acted: list[tuple[int, int]] = []

    async def scenario(writer: HistoryWriter, disk: SlowDisk) -> None:
        writer.in_background(lambda error: None)
        append(writer, 0)
        writer.after(lambda: acted.append((0, disk.syncs)))
        await asyncio.to_thread(disk.waits.wait)
        for number in range(1, GROUP + 1):
            append(writer, number)
            writer.after(lambda number=number: acted.append((number, disk.syncs)))  # type: ignore[misc]
        assert acted == []
        disk.release.set()
        await writer.settled()

    disk = with_writer(tmp_path, monkeypatch, scenario)
    assert (disk.writes, disk.syncs) == (2, 2)
    assert [number for number, _ in acted] == list(range(GROUP + 1))
    assert all(syncs == 2 for number, syncs in acted if number), "acted on before its group was durable"
    assert sequences(RunPaths(tmp_path)) == list(range(GROUP + 1))


def test_a_group_that_fails_leaves_the_file_as_before_and_nothing_is_acted_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    acted: list[int] = []
    failures: list[StorageError] = []

    async def scenario(writer: HistoryWriter, disk: SlowDisk) -> None:
        def half(descriptor: int, data: bytes) -> int:
            disk.write(descriptor, data[: len(data) // 2])
            raise OSError(errno.EFBIG, "File too large")

        failed = asyncio.Event()

        def fail(error: StorageError) -> None:
            failures.append(error)
            failed.set()

        writer.in_background(fail)
        append(writer, 0)
        writer.after(lambda: acted.append(0))
        await asyncio.to_thread(disk.waits.wait)
        monkeypatch.setattr(os, "write", half)
        for number in range(1, GROUP + 1):
            append(writer, number)
            writer.after(lambda number=number: acted.append(number))  # type: ignore[misc]
        disk.release.set()
        await failed.wait()
        with pytest.raises(StorageError, match="File too large"):
            append(writer, GROUP + 1)

    with pytest.raises(StorageError, match="File too large"):
        with_writer(tmp_path, monkeypatch, scenario)
    assert len(failures) == 1
    assert acted == [0]
    assert sequences(RunPaths(tmp_path)) == [0]


class Stalled:
    """A thread whose file system does not answer: actions only pile up."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], object]] = []
        self.idle = False

    def put(self, action: Callable[[], object]) -> None:
        self.waiting.append(action)

    def after(self, callback: Callable[[], object]) -> None:
        pass

    def drain(self, timeout_s: float) -> bool:
        return False


def test_looks_do_not_pile_up_behind_a_slow_file_system(tmp_path: Path) -> None:
    paths, clock, thread = RunPaths(tmp_path), ManualClock(), Stalled()
    paths.create()

    async def look_for_a_minute() -> None:
        writer = HistoryWriter(paths, "primary", clock)
        writer.in_background(lambda _: None, lambda *_: thread)
        for _ in range(60):
            clock.pause(1.0)
            writer.look()
        assert len(thread.waiting) == 1
        thread.waiting.pop()()
        clock.pause(1.0)
        writer.look()
        assert len(thread.waiting) == 1

    asyncio.run(look_for_a_minute())
