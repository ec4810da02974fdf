"""Entries of a digest: a line of JSON each, with a checksum.

The checksum is that of records (`aiperf.records.record`). An entry carries no link; its hash is
the SHA-256 of the hash before it, as 64 hex digits, and its line without the newline. The hash
before the first is that of `run.json`. So number and hash of an entry name all entries up to it.
"""

from __future__ import annotations

import json
import re
import zlib
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from aiperf.errors import DigestDamagedError
from aiperf.records.chain import hash_of
from aiperf.records.decoding.ranges import OF_FIELD
from aiperf.untrusted.reading import shortened

_STRICT = ConfigDict(extra="forbid")

Number = Annotated[int, Field(ge=0, le=OF_FIELD["trial"][1])]
Name = Annotated[str, Field(max_length=200)]


@dataclass(frozen=True, slots=True, kw_only=True, config=_STRICT)
class Opened:
    """The first entry: the primary that writes this digest."""

    entry: Literal["opened"] = "opened"
    version: Literal[1] = 1
    primary: Name


@dataclass(frozen=True, slots=True, kw_only=True, config=_STRICT)
class Began:
    """A trial has begun; the fields are those of its `TrialStarted` that the search needs."""

    entry: Literal["began"] = "began"
    trial: Number
    replica: Number
    round: Number
    architecture: Name
    parent: Name | None
    morphs: tuple[dict[str, str | int], ...] = ()
    point: Number = 0
    base: Number | None = None
    resumes: Number | None = None
    hyperparameters: dict[str, int | float | str]


How = Literal["completed", "early_stop", "failed", "stopped", "lost"]


@dataclass(frozen=True, slots=True, kw_only=True, config=_STRICT)
class Over:
    """A trial is over, whether it had begun or not.

    `lost` may follow `stopped`: a resumption of the run takes the trial up again.
    """

    entry: Literal["over"] = "over"
    trial: Number
    how: How
    kind: Name = ""
    """Of a failure; cancellation is one."""
    predicted: float | None = None
    """`TrialEnded.predicted_accuracy`."""
    epochs: tuple[Number, ...] = ()
    """The completed epochs of this trial."""
    qualities: tuple[float | None, ...] = ()
    """The quality after each of them; None: not measured."""


Entry = Opened | Began | Over

_ENTRY: TypeAdapter[Entry] = TypeAdapter(Annotated[Entry, Field(discriminator="entry")])
_TAIL = re.compile(rb',"crc32":"([0-9a-f]{8})"\}')
_TAIL_BYTES = len(b',"crc32":"01234567"}')


def encode_entry(entry: Entry) -> bytes:
    """The entry as one line. Fields that say nothing are left out."""
    data: dict[str, Any] = {"entry": entry.entry, **_ENTRY.dump_python(entry, exclude_defaults=True)}
    head = json.dumps(data, separators=(",", ":"))[:-1].encode()
    return head + b',"crc32":"%08x"}\n' % zlib.crc32(head)


def decode_entry(line: bytes) -> Entry:
    """An entry from its line, without the newline. Raises DigestDamagedError with the reason."""
    head, tail = line[:-_TAIL_BYTES], line[-_TAIL_BYTES:]
    found = _TAIL.fullmatch(tail)
    if found is None or b"%08x" % zlib.crc32(head) != found.group(1):
        raise DigestDamagedError("the checksum does not fit: the line was changed or torn")
    try:
        entry = _ENTRY.validate_json(head + b"}")
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = ".".join(map(str, problem["loc"]))
        raise DigestDamagedError(shortened(f"is not an entry: {where}: {problem['msg']}")) from None
    if isinstance(entry, Over) and len(entry.epochs) != len(entry.qualities):
        raise DigestDamagedError(f"has {len(entry.epochs)} epochs and {len(entry.qualities)} qualities")
    return entry


def next_hash(before: str, line: bytes) -> str:
    """The hash of an entry, from that of the entry before and its line without the newline."""
    return hash_of(before.encode() + line)
