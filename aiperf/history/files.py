"""The shared history list: one file per writer, durable appends, incremental readers.

NFS has neither an atomic append nor dependable locks, so no two processes ever write one file: a
writer creates its file exclusively and a restarted writer takes a new name.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Self

from aiperf.clock import Clock
from aiperf.errors import RecordDamagedError, RecordOutOfRangeError
from aiperf.files import sync_directory
from aiperf.history.bodies import AnyBody
from aiperf.history.chain import first_link, hash_of
from aiperf.history.cursor import Cursor
from aiperf.history.damage import Damage, DamageKind
from aiperf.history.fencing import reading_order
from aiperf.history.records import Record, decode_record, encode_record
from aiperf.outside.reading import shortened
from aiperf.run_directory.paths import RunPaths

log = logging.getLogger(__name__)

PASSING_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ESTALE, errno.EIO})
"""A full disk, a remount, a server that restarts: these may pass."""

PATIENCE_S = 30.0
RETRY_S = 1.0


class HistoryWriter:
    """Appends records to a file of its own: one write and one fsync each.

    `role` is the first part of the writer's name ("primary", "replica-0003"); the second counts its
    starts.
    """

    def __init__(self, paths: RunPaths, role: str, clock: Clock) -> None:
        self.clock = clock
        """The clock of its records."""
        self.patience_s = PATIENCE_S
        """Seconds to wait for a file system that refuses a record."""
        self._sequence = 0
        self._head = first_link(paths)
        self.name, self._descriptor = _create_exclusively(paths, role)
        self._good_bytes = 0

    def append(self, body: AnyBody, at_monotonic_ms: int | None = None) -> Record:
        """Write a record durably; its time is now, or a moment of the node's monotonic clock.

        Raises OSError if it cannot be written within `patience_s`; the file is then as before.
        """
        monotonic_ms = self.clock.monotonic_ms() if at_monotonic_ms is None else at_monotonic_ms
        time_ms = self.clock.utc_ms_at(monotonic_ms)
        record = Record(self.name, self._sequence, time_ms, monotonic_ms, body, self._head)
        line = encode_record(record)
        self._write(line)
        self._sequence += 1
        self._head = hash_of(line[:-1])
        return record

    @property
    def head(self) -> tuple[int, str] | None:
        """Sequence number and hash of the last record; None if there is none."""
        return (self._sequence - 1, self._head) if self._sequence else None

    def _write(self, line: bytes) -> None:
        """Write a line whole, or not at all; wait a while if the file system is full or refuses."""
        for attempt in count():
            try:
                if os.write(self._descriptor, line) != len(line):
                    raise OSError(errno.ENOSPC, "short write to the history list")
                os.fsync(self._descriptor)
            except OSError as error:
                os.ftruncate(self._descriptor, self._good_bytes)
                if error.errno not in PASSING_ERRORS or attempt >= self.patience_s / RETRY_S:
                    raise
                if attempt == 0:
                    log.warning("%s cannot be written (%s); trying again for %.0f s", self.name, error, self.patience_s)
                self.clock.pause(RETRY_S)
            else:
                break
        if attempt:
            log.warning("%s can be written again", self.name)
        self._good_bytes += len(line)

    def close(self) -> None:
        """Close the file; further appends fail."""
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _create_exclusively(paths: RunPaths, role: str) -> tuple[str, int]:
    start = 1
    while True:
        name = f"{role}-{start}"
        try:
            descriptor = os.open(paths.history_file(name), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        except FileExistsError:
            start += 1
        else:
            sync_directory(paths.history)
            return name, descriptor


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

    def read_new(self) -> Batch:
        """Records and damages since the last call. Raises OSError if a file cannot be read."""
        batches = list(self.read_files())
        return Batch(
            tuple(record for batch in batches for record in batch.records),
            tuple(damage for batch in batches for damage in batch.damages),
        )

    def read_files(self) -> Iterator[Batch]:
        """As `read_new`, writer by writer: a long history need not be in memory at once.

        Files come in the order of `reading_order`.
        """
        files = {file for role in self._roles for file in self._paths.history_files(role)}
        for file in sorted(files, key=lambda file: reading_order(file.stem)):
            position = self._positions.setdefault(file.name, _Position())
            lines = _new_lines(file, position)
            first = position.lines + 1
            position.lines += len(lines)
            position.last = lines[-1] if lines else position.last
            yield decode_lines(file.name, enumerate(lines, start=first))

    def cursor(self) -> Cursor:
        """How far every file was read."""
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


def read_from(file: Path, offset: int = 0) -> bytes:
    """The bytes of a file from an offset on; none if this node does not see the file yet."""
    try:
        with file.open("rb") as stream:
            stream.seek(offset)
            return stream.read()
    except OSError as error:
        if error.errno not in (errno.ESTALE, errno.ENOENT):
            raise
        return b""


def _new_lines(file: Path, position: _Position) -> list[bytes]:
    data = read_from(file, position.offset)
    complete = data[: data.rfind(b"\n") + 1]
    position.offset += len(complete)
    return complete.split(b"\n")[:-1]
