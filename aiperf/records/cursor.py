"""A place in the history list: how far a reader had read the file of every writer.

As text it is "writer:sequence" for each, in the order of the names, separated by spaces; long ones
are compressed (zlib, base64) after a "z".
"""

import base64
import binascii
import hashlib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from aiperf.errors import RecordDamagedError

LONG = 400
"""Characters from which on the text is compressed."""

MOST_CHARACTERS = 1 << 22
"""Longest text of a cursor: enough for a hundred thousand writers."""


@dataclass(frozen=True)
class Cursor:
    """The last record of each writer that was read: its sequence number and its hash."""

    heads: Mapping[str, tuple[int, str]] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The sequence numbers by writer."""
        plain = " ".join(f"{writer}:{sequence}" for writer, (sequence, _) in sorted(self.heads.items()))
        if len(plain) < LONG:
            return plain
        return "z" + base64.b64encode(zlib.compress(plain.encode())).decode()

    @property
    def hash(self) -> str:
        """SHA-256 over a line "writer sequence hash" for each head, in the order of the names."""
        lines = (f"{writer} {sequence} {digest}\n" for writer, (sequence, digest) in sorted(self.heads.items()))
        return hashlib.sha256("".join(lines).encode()).hexdigest()


@dataclass
class SeenNumbers:
    """The sequence numbers of one writer that were seen: all below `next`, and some beyond."""

    next: int = 0
    beyond: set[int] = field(default_factory=set)

    def add(self, number: int) -> bool:
        """Note a number; True if it is new."""
        if number == self.next and not self.beyond:  # most records
            self.next += 1
            return True
        if number < self.next or number in self.beyond:
            return False
        self.beyond.add(number)
        while self.next in self.beyond:
            self.beyond.discard(self.next)
            self.next += 1
        return True


def parse_cursor(text: str) -> dict[str, int]:
    """The last sequence number by writer. Raises RecordDamagedError if it is not a cursor."""
    if text.startswith("z"):
        text = _decompressed(text[1:])
    places: dict[str, int] = {}
    for word in text.split():
        writer, colon, number = word.rpartition(":")
        # 18 digits fit into the 64 bits of a column of records.
        if not colon or not number.isdecimal() or len(number) > 18 or writer in places:
            raise RecordDamagedError(f"is not a cursor: {word[:100]!r}")
        places[writer] = int(number)
    return places


def _decompressed(text: str) -> str:
    try:
        # A few bytes can unpack to gigabytes, so the length is limited while they are unpacked.
        unpacker = zlib.decompressobj()
        plain = unpacker.decompress(base64.b64decode(text, validate=True), MOST_CHARACTERS)
    except (binascii.Error, ValueError, zlib.error) as error:
        raise RecordDamagedError(f"is not a cursor: {error}") from None
    if unpacker.unconsumed_tail:
        raise RecordDamagedError("is not a cursor: it is too long")
    return plain.decode(errors="replace")
