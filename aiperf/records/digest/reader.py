"""The reader of a digest: each look opens one file and takes what is new in it."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from aiperf.errors import DigestDamagedError
from aiperf.records.chain import first_link
from aiperf.records.cursor import Cursor
from aiperf.records.digest.entries import SEGMENT_ENTRIES, Entry, Opened, cursor_at, decode_entry, next_hash
from aiperf.run_directory.paths import RunPaths, digest_segment
from aiperf.storage.patience import with_patience

MOST_BYTES = 256 << 20
"""Upper limit for the bytes of a segment: a hundred times those of a real one."""


@dataclass(frozen=True, slots=True)
class Line:
    """An entry, its number in the digest from 0, its hash, and its text without the newline."""

    number: int
    hash: str
    entry: Entry
    text: bytes = b""


class DigestReader:
    """Reads the digest of one primary, each time only what is new.

    An unfinished last line is left for later. All else that is not as a writer leaves it raises
    DigestDamagedError: what was read before that place stays good.
    """

    def __init__(self, paths: RunPaths, primary: str) -> None:
        self.primary = primary
        self._paths = paths
        self._count = 0
        self._offset = 0
        """Byte offset of the next entry in its segment."""
        self._hash = with_patience(lambda: first_link(paths), paths.run)

    def read_new(self) -> Iterator[Line]:
        """Entries since the last call. Raises OSError if a segment cannot be read."""
        before = -1
        # A full segment is followed by another one. A look ends in the segment that is being
        # written, or where the next one is not there yet.
        while before < self._count:
            before = self._count
            yield from self._of_segment()
            if self._count % SEGMENT_ENTRIES:
                return

    def cursor(self) -> Cursor:
        """Position up to which the digest was read."""
        return cursor_at(self.primary, self._count - 1, self._hash)

    def _segment(self) -> Path:
        return digest_segment(self._paths, self.primary, self._count // SEGMENT_ENTRIES + 1)

    def _of_segment(self) -> Iterator[Line]:
        segment = self._segment()
        for line in self._new_lines(segment):
            try:
                entry = decode_entry(line)
                if isinstance(entry, Opened) != (self._count == 0):
                    raise DigestDamagedError("names its primary in another place than the first line")
                if isinstance(entry, Opened) and entry.primary != self.primary:
                    raise DigestDamagedError(f"is {entry.primary}'s")
            except DigestDamagedError as error:
                raise DigestDamagedError(f"{self._named(segment)} entry {self._count}: {error}") from None
            self._hash = next_hash(self._hash, line)
            self._count += 1
            self._offset += len(line) + 1
            if self._count % SEGMENT_ENTRIES == 0:
                self._offset = 0
            yield Line(self._count - 1, self._hash, entry, line)

    def _new_lines(self, segment: Path) -> list[bytes]:
        data = with_patience(lambda: self._new_bytes(segment), segment)
        lines = data.split(b"\n")[:-1]
        room = SEGMENT_ENTRIES - self._count % SEGMENT_ENTRIES
        if len(lines) > room:
            raise DigestDamagedError(f"{self._named(segment)} has more than {SEGMENT_ENTRIES} entries")
        return lines

    def _new_bytes(self, segment: Path) -> bytes:
        try:
            # Opened anew, as NFS needs it for fresh content, and without a buffer: one call reads
            # up to the end as it is at this moment.
            with segment.open("rb", buffering=0) as stream:
                size = os.fstat(stream.fileno()).st_size
                # A file that has become shorter was changed by another program.
                if not self._offset <= size <= MOST_BYTES:
                    raise DigestDamagedError(f"{self._named(segment)} has {size} bytes, and had {self._offset}")
                stream.seek(self._offset)
                return stream.read() or b""
        except FileNotFoundError:
            if self._count and self._offset == 0:
                return b""  # the one before is full, and nothing has come since
            raise DigestDamagedError(f"{self._named(segment)} is missing") from None

    def _named(self, segment: Path) -> str:
        return str(segment.relative_to(self._paths.root))
