"""The shared history list: one file per writer, durable appends, incremental readers.

NFS has neither an atomic append nor dependable locks, so no two processes ever write one file: a
writer creates its file exclusively and a restarted writer takes a new name.
"""

import asyncio
import contextlib
import errno
import threading
from codecs import BOM_UTF8
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from math import inf
from pathlib import Path
from typing import Self

from aiperf.clock import Clock
from aiperf.errors import RecordDamagedError, RecordOutOfRangeError, StorageError
from aiperf.records.bodies import AnyBody, ReplicaReady
from aiperf.records.chain import first_link, hash_of
from aiperf.records.cursor import Cursor
from aiperf.records.damage import Damage, DamageKind
from aiperf.records.fencing import PRIMARY, reading_order
from aiperf.records.record import Record, decode_record, encode_record
from aiperf.run_directory.paths import RunPaths
from aiperf.storage.appended import Appendable, AppendedFile, CreateFile
from aiperf.storage.error_texts import why_not_written
from aiperf.storage.patience import PATIENCE, Patience, with_patience
from aiperf.storage.storage_thread import InOrder, MakeOrdered, Ordered
from aiperf.untrusted.reading import shortened

LAST_RECORDS_S = 10.0
"""Longest wait for the thread of a writer at the end: it may be in a call that never returns."""

LOOK_INTERVAL_S = 1.0
"""Least time between two looks of a writer whether its file is still under its name."""


class HistoryWriter:
    """Appends records to a file of its own: one write and one fsync each, or for a group of them.

    `role` is the first part of the writer's name ("primary", "replica-0003"); the second counts its
    starts. Records are written at once, or in a thread once `in_background` is called: all that
    were appended while it wrote are its next group. Raises StorageError if the file cannot be made.
    """

    def __init__(
        self,
        paths: RunPaths,
        role: str,
        clock: Clock,
        patience: Patience = PATIENCE,
        create: CreateFile = AppendedFile,
    ) -> None:
        self.clock = clock
        """The clock of its records."""
        self._root = paths.root
        self._sequence = 0
        self._look_due = False
        """True while a look waits for the thread: on a slow file system they would pile up."""
        self._thread: Ordered | None = None
        self._group: deque[bytes] = deque()
        """Lines that are not being written yet."""
        self._group_due = False
        """True while a call of `_write_group` is due that has not begun."""
        self._failure: StorageError | None = None
        try:
            self._head = patience.attempt(lambda: first_link(paths), paths.run)
            self.name, self._file = _create_exclusively(paths, role, patience, create)
        except OSError as error:
            raise self._cause(error) from error
        self._looked_s = -inf if self._file.shared else inf
        """Time of the last look; infinite if there is nothing to look for, so that none is due."""

    def in_background(self, failed: Callable[[StorageError], object], thread: MakeOrdered = InOrder) -> None:
        """Write in a thread from now on; `failed` is called in this event loop if that is over.

        `append` returns at once then. What must not be known before the record is durable waits
        for `after` or `settled`.
        """

        def fail(error: Exception) -> None:
            self._failure = error if isinstance(error, StorageError) else self._cause(error)
            failed(self._failure)

        self._thread = thread(asyncio.get_running_loop(), fail)

    def append(self, body: AnyBody, at_monotonic_ms: int | None = None) -> Record:
        """Write a record durably; its time is now, or a moment of the node's monotonic clock.

        Raises StorageError if it cannot be written, or if an earlier one could not be; the file is
        then as before this record and its group.
        """
        if self._failure is not None:
            raise self._failure
        monotonic_ms = self.clock.monotonic_ms() if at_monotonic_ms is None else at_monotonic_ms
        # UTC is read once, when the clock is made, and counted on by the monotonic clock: a step of
        # NTP in the middle of a run makes no epoch longer or shorter.
        time_ms = self.clock.utc_ms_at(monotonic_ms)
        record = Record(self.name, self._sequence, time_ms, monotonic_ms, body, self._head)
        line = encode_record(record)
        # The record is numbered and linked here, in the order of calls, and written by the thread
        # in that order: a group that fails leaves the file behind, and `_failure` lets no later
        # record follow it.
        self._group.append(line)
        if not self._group_due:
            self._group_due = True
            self._do(self._write_group)
        # Not before `_do`: without a thread it raises here, and a record that was not written must
        # leave its number and its place in the chain to the next one.
        self._sequence += 1
        # Readers split a file into lines before they check the chain, so a link covers no newline.
        self._head = hash_of(line[:-1])
        return record

    def look(self) -> None:
        """Restore the file if it was deleted or replaced; no-op if that was looked at just now.

        Raises StorageError if it cannot be restored, or the run directory is gone.
        """
        if self._failure is None and not self._look_due and self._looked_long_ago():
            self._look_due = True
            self._do(self._look)

    def _looked_long_ago(self) -> bool:
        return self.clock.monotonic_s() - self._looked_s >= LOOK_INTERVAL_S

    def _look(self) -> None:
        self._look_due = False
        # Again: a group that was written meanwhile has looked.
        if self._looked_long_ago():
            self._looked_s = self.clock.monotonic_s()
            self._file.look()

    def _write_group(self) -> None:
        """Write all lines that wait, if an earlier call has not written them, after a look."""
        self._group_due = False  # first: a line that comes now is in this group, and in the next call's at the latest
        # By count, because the event loop may append meanwhile. Both ends of a deque are safe
        # between threads, and a lock would let the loop wait for the disk.
        lines = [self._group.popleft() for _ in range(len(self._group))]
        self._look()
        if lines:
            self._file.append(b"".join(lines))

    def _do(self, action: Callable[[], object]) -> None:
        if self._thread is not None:
            self._thread.put(action)
            return
        try:
            action()
        except OSError as error:
            raise self._cause(error) from error

    def _cause(self, error: Exception) -> StorageError:
        reason = f": {error}"
        if isinstance(error, OSError):
            reason = why_not_written(self._root, error).removeprefix(f"{self._root} cannot be written")
        return StorageError([f"the run directory {self._root} can no longer be written{reason}"])

    @property
    def head(self) -> tuple[int, str] | None:
        """Sequence number and hash of the last record; None if there is none."""
        return (self._sequence - 1, self._head) if self._sequence else None

    def after(self, callback: Callable[[], object]) -> None:
        """Call back when all records so far are durable; never if one fails."""
        if self._thread is None:
            callback()
        elif self._failure is None:
            self._thread.after(callback)

    async def settled(self) -> None:
        """Wait until all records so far are durable. Raises StorageError if one failed."""
        if self._thread is None or self._thread.idle:
            return
        done = asyncio.Event()
        self.after(done.set)
        while not done.is_set():
            if self._failure is not None:
                raise self._failure
            # A thread that has failed makes no more calls: the failure is looked for once a second.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await done.wait()

    def close(self, timeout_s: float = inf) -> None:
        """Write what is left, look after the file once more and close it; further appends fail.

        Raises StorageError if records are left after that time, or one failed, or the run directory
        is gone.
        """
        try:
            # `Thread.join` raises OverflowError for an infinite time.
            if self._thread is not None and not self._thread.drain(min(timeout_s, threading.TIMEOUT_MAX)):
                raise TimeoutError("the last records are missing")
        except OSError as error:
            raise self._cause(error) from error
        with contextlib.suppress(OSError):  # the records are written, where this writer can see them
            self._file.look()
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close(LAST_RECORDS_S)


def _create_exclusively(paths: RunPaths, role: str, patience: Patience, create: CreateFile) -> tuple[str, Appendable]:
    # The exclusive creation decides between two starts of one role, which no list of files could: a
    # node may see a folder as it was seconds ago.
    for start in count(1):
        name = f"{role}-{start}"
        with contextlib.suppress(FileExistsError):
            return name, create(paths.history_file(name), paths.root, paths.run, patience)
    raise AssertionError


@dataclass(frozen=True, slots=True)
class Batch:
    """New records and damages since the last look of a reader."""

    records: tuple[Record, ...]
    damages: tuple[Damage, ...]


@dataclass
class _Position:
    offset: int = 0
    lines: int = 0
    last: bytes = b""
    """The last line, without its newline."""


class HistoryReader:
    """Reads the files of all writers, each time only what is new.

    An unfinished last line is left for later; any other damage is returned, never skipped silently.
    `roles` limits it to some writers ("primary", "replica-0003").
    """

    def __init__(self, paths: RunPaths, roles: tuple[str, ...] = ()) -> None:
        self._paths = paths
        self._roles = roles or ("*",)
        self._positions: dict[str, _Position] = {}
        self._named = set[str]()
        """Writers of replicas that primaries have found ready."""

    def read_new(self) -> Batch:
        """Records and damages since the last call. Raises OSError if a file cannot be read."""
        batches = list(self.read_files())
        return Batch(
            tuple(record for batch in batches for record in batch.records),
            tuple(damage for batch in batches for damage in batch.damages),
        )

    def read_files(self) -> Iterator[Batch]:
        """Read new records one writer at a time: a long history need not be in memory at once.

        Files come in the order of `reading_order`.
        """
        files = {file for role in self._roles for file in self._paths.history_files(role)}
        # Primaries first, the last one of them before the others: the fences are then known before
        # the records that they drop.
        in_order = deque(sorted(files, key=lambda file: reading_order(file.stem)))
        # This node's listing of the folder may be old: files that primaries name are opened by
        # name.
        while in_order or (in_order := deque(self._not_listed(files))):
            file = in_order.popleft()
            files.add(file)
            position = self._positions.setdefault(file.name, _Position())
            complete = _new_lines(file, position)
            lines = complete.split(b"\n")[:-1]
            first = position.lines + 1
            position.lines += len(lines)
            # Only the last line is kept: a cursor has its hash, and hashing every line as it is
            # read would cost a reader that never asks for a cursor.
            position.last = lines[-1] if lines else position.last
            if words := translated(complete):
                yield Batch((), (Damage(f"history/{file.name}", None, "record", words),))
                continue
            batch = decode_lines(file.name, enumerate(lines, start=first))
            if file.stem.startswith(PRIMARY):
                bodies = (record.body for record in batch.records)
                self._named.update(body.writer for body in bodies if isinstance(body, ReplicaReady))
            yield batch

    def _not_listed(self, listed: set[Path]) -> list[Path]:
        roles = tuple("" if role == "*" else f"{role}-" for role in self._roles)
        return self._paths.unlisted_files((name for name in self._named if name.startswith(roles)), listed)

    def cursor(self) -> Cursor:
        """Position up to which every file was read."""
        return Cursor(
            {
                name.removesuffix(".jsonl"): (position.lines - 1, hash_of(position.last))
                for name, position in self._positions.items()
                if position.lines
            }
        )

    def unfinished(self) -> list[str]:
        """Files that end in an unfinished line, as of the last call of `read_new`."""
        return sorted(
            name
            for name, position in self._positions.items()
            if (file := self._paths.history / name).exists() and file.stat().st_size > position.offset
        )


def decode_lines(file: str, lines: Iterable[tuple[int, bytes]]) -> Batch:
    """Records and damages of numbered lines of a writer's file."""
    writer = file.removesuffix(".jsonl")
    records: list[Record] = []
    damages: list[Damage] = []
    for number, line in lines:
        try:
            record = decode_record(line)
            if record.writer != writer:
                raise RecordDamagedError(f"the record is {shortened(record.writer)}'s, not this file's")
            records.append(record)
        except RecordDamagedError as error:
            kind: DamageKind = "bounds" if isinstance(error, RecordOutOfRangeError) else "record"
            damages.append(Damage(f"history/{file}", number, kind, str(error)))
    return Batch(tuple(records), tuple(damages))


def translated(data: bytes) -> str:
    """Words about a file of records whose ends of lines a program translated; empty if none did.

    Each such line would be a damage of its own. A single one is left to be one.
    """
    ends, lines = data.count(b"\r\n"), data.count(b"\n")
    if ends > 1 or 0 < ends == lines:
        many = "its" if ends == lines else f"{ends:,} of its {lines:,}"
        return f"{many} line ends were translated to CRLF; copy the run again, byte by byte"
    if data.startswith(BOM_UTF8):
        return "it begins with a byte order mark, as editors write it; copy the run again, byte by byte"
    return ""


def read_from(file: Path, offset: int = 0) -> bytes:
    """The bytes of a file from an offset on; none if this node does not see the file yet.

    Raises OSError after the patience.
    """

    def read() -> bytes:
        try:
            # Opened anew at each look. NFS promises fresh content when a file is opened, and not
            # before (nfs(5), close-to-open consistency).
            with file.open("rb") as stream:
                stream.seek(offset)
                return stream.read()
        # A node may see a new name late: NFS keeps what it knows of a folder for up to a minute
        # (acdirmax of nfs(5)).
        except FileNotFoundError:
            return b""

    def read_fresh() -> bytes:
        try:
            return read()
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
            # The client drops the handle that was refused (ESTALE), so a second attempt looks the
            # name up again.
            return read()

    return with_patience(read_fresh, file)


def _new_lines(file: Path, position: _Position) -> bytes:
    data = read_from(file, position.offset)
    # A writer writes whole groups, but a reader on another node may see the first part of one: what
    # has no newline yet is read again, from its beginning, at the next look.
    complete = data[: data.rfind(b"\n") + 1]
    position.offset += len(complete)
    return complete
