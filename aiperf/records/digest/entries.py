"""Entries of a digest, a line of JSON each, and their places in its files.

The checksum of an entry is that of records (`aiperf.records.record`). An entry carries no link; its
hash is the SHA-256 of the hash before it, as 64 hex digits, and its line without the newline. The
hash before the first is that of `run.json`. So number and hash of an entry name all entries up to
it. A cursor into a digest (`aiperf.records.cursor`) has one head, "digest/<primary>", with the
number of the last entry that was read, from 0, and its hash.
"""

import json
import re
import zlib
from collections.abc import Iterable
from typing import Any, Literal

from msgspec import NODEFAULT, Struct
from msgspec.json import Decoder

from aiperf.errors import DigestDamagedError
from aiperf.facts import Name, Number, Trial, Whole
from aiperf.records.chain import hash_of
from aiperf.records.cursor import Cursor
from aiperf.untrusted.structs import decoded, refusal

PREFIX = "digest/"
"""Prefix of a digest's head in a cursor; no writer of the history list has such a name."""

SEGMENT_ENTRIES = 4096
"""Entries of a full segment, about 2 MB: which file an entry is in follows from its number."""


def head_name(primary: str) -> str:
    """The name of a digest in a cursor."""
    return PREFIX + primary


def cursor_at(primary: str, number: int, digest: str) -> Cursor:
    """The cursor behind entry `number`, whose hash is `digest`; of nothing if it is negative."""
    return Cursor({head_name(primary): (number, digest)} if number >= 0 else {})


def primary_of(names: Iterable[str]) -> str | None:
    """The primary whose digest a cursor with these heads is of; None if it is of raw records."""
    return next((name.removeprefix(PREFIX) for name in sorted(names) if name.startswith(PREFIX)), None)


def is_primary(name: str) -> bool:
    """True if a primary may have this name, and so a folder of a digest."""
    return re.fullmatch(r"primary-[1-9]\d{0,8}", name, re.ASCII) is not None


class _Entry(Struct, frozen=True, forbid_unknown_fields=True, tag_field="entry"):
    pass


class Opened(_Entry, tag="opened", frozen=True, kw_only=True):
    """The first entry: the primary that writes this digest."""

    version: Literal[1] = 1
    primary: Name


class Began(_Entry, tag="began", frozen=True, kw_only=True):
    """A trial has begun; the fields are those of its `TrialStarted` that the search needs."""

    trial: Trial
    replica: Number
    round: Number
    architecture: Name
    parent: Name | None
    morphs: tuple[dict[str, str | Whole], ...] = ()
    point: Number = 0
    base: Trial | None = None
    resumes: Trial | None = None
    hyperparameters: dict[str, Whole | float | str]


How = Literal["completed", "early_stop", "failed", "stopped", "lost"]


class Over(_Entry, tag="over", frozen=True, kw_only=True):
    """A trial is over, whether it had begun or not.

    `lost` may follow `stopped`: a resumption of the run takes the trial up again.
    """

    trial: Trial
    how: How
    kind: Name = ""
    """Kind of a failure, cancellation included."""
    predicted: float | None = None
    """`TrialEnded.predicted_accuracy`."""
    epochs: tuple[Number, ...] = ()
    """The completed epochs of this trial."""
    qualities: tuple[float | None, ...] = ()
    """The quality after each of them; None: not measured."""


Entry = Opened | Began | Over

_ENTRY: Decoder[Entry] = Decoder(Entry)
_TAIL = re.compile(rb',"crc32":"([0-9a-f]{8})"\}')
_TAIL_BYTES = len(b',"crc32":"01234567"}')


def encode_entry(entry: Entry) -> bytes:
    """The entry as one line. Fields that say nothing are left out."""
    # From the end: a struct lists defaults of its last fields alone.
    defaults = dict(zip(entry.__struct_fields__[::-1], entry.__struct_defaults__[::-1], strict=False))
    data: dict[str, Any] = {"entry": entry.__struct_config__.tag}
    for name in entry.__struct_fields__:
        value = getattr(entry, name)
        if value != defaults.get(name, NODEFAULT):
            data[name] = value
    head = json.dumps(data, separators=(",", ":"))[:-1].encode()
    return head + b',"crc32":"%08x"}\n' % zlib.crc32(head)


def decode_entry(line: bytes) -> Entry:
    """An entry from its line, without the newline. Raises DigestDamagedError with the reason."""
    head, tail = line[:-_TAIL_BYTES], line[-_TAIL_BYTES:]
    found = _TAIL.fullmatch(tail)
    if found is None or b"%08x" % zlib.crc32(head) != found.group(1):
        raise DigestDamagedError("the checksum does not fit: the line was changed or torn")
    try:
        entry = decoded(_ENTRY, head + b"}")
    except (ValueError, RecursionError) as error:
        raise DigestDamagedError(f"is not an entry: {refusal(error)}") from None
    if isinstance(entry, Over) and len(entry.epochs) != len(entry.qualities):
        raise DigestDamagedError(f"has {len(entry.epochs)} epochs and {len(entry.qualities)} qualities")
    return entry


def next_hash(before: str, line: bytes) -> str:
    """The hash of an entry, from that of the entry before and its line without the newline."""
    return hash_of(before.encode() + line)
