"""Records of the history list: a line of JSON each, with writer, number, link and checksum.

The link is the hash of the writer's record before (`aiperf.records.chain`). The checksum (CRC-32 of
everything before it in the line) is the last key: it detects torn and damaged lines.
"""

import json
import re
import zlib
from json.encoder import encode_basestring_ascii as _text
from sys import intern
from typing import Literal, get_args

import msgspec
from msgspec import UNSET, Struct, UnsetType

from aiperf.clock import format_utc, parse_utc
from aiperf.errors import RecordDamagedError, RecordOutOfRangeError
from aiperf.facts import LAST_MS, Moment, Offset
from aiperf.records.bodies import AnyBody, Body, EpochCompleted, ProgressMade
from aiperf.untrusted.reading import shortened
from aiperf.untrusted.structs import decoded, refusal, value_at

VERSION = 2
"""Version of a record with a chain. Version 1 had none."""

CHECKSUM_KEY = b',"crc32":"'
TAIL_BYTES = len(CHECKSUM_KEY) + 8 + len(b'"}')
HASH_LENGTH = 64
HEXADECIMAL = "0123456789abcdef"


class Record(Struct, frozen=True, gc=False):
    """One record: its writer, its number, its times on the writer's clock, and its body.

    `previous` is the hash of the record before; None in version 1, which had no chain.
    """

    writer: str
    sequence: int
    time_ms: int
    monotonic_ms: int
    body: AnyBody
    previous: str | None = None


class Line(Struct, gc=False, forbid_unknown_fields=True):
    """A line as it is written."""

    version: Literal[1, 2]
    writer: str
    sequence: Moment
    time: str
    monotonic_ms: Offset
    data: AnyBody
    crc32: str
    previous: str | UnsetType = UNSET


DECODER = msgspec.json.Decoder(Line)
"""The only one."""


def encode_record(record: Record) -> bytes:
    """The record as one line, checksum last."""
    version = 1 if record.previous is None else VERSION
    document = (
        f'{{"version":{version},"writer":{_text(record.writer)},"sequence":{record.sequence},'
        f'"time":"{format_utc(record.time_ms)}","monotonic_ms":{record.monotonic_ms},"data":{_data_of(record.body)}'
    )
    head = (f'{document},"previous":{_text(record.previous)}' if record.previous is not None else document).encode()
    return head + CHECKSUM_KEY + b'%08x"}\n' % zlib.crc32(head)


def _data_of(body: AnyBody) -> str:
    """A body as JSON, with numbers as Python's encoder writes them, not msgspec."""
    parts = []
    for name, begin in _FIELDS[type(body)]:
        value = getattr(body, name)
        kind = type(value)
        if kind is int:  # the encoder takes microseconds to begin, whatever it encodes: most fields go without it
            parts.append(f"{begin}{value}")
        elif kind is str:
            parts.append(begin + _text(value))
        elif value is not None:
            parts.append(begin + _json(value))
        elif name not in _LATER:
            parts.append(f"{begin}null")
    return f"{{{','.join(parts)}}}"


def _names_of(kind: type[Struct]) -> tuple[str, ...]:
    """The fields of a body in the order of a line: its facts, its type, and what it adds."""
    names = list(kind.__struct_fields__)
    # Type and trial come first, so that the start of a line identifies it among millions.
    if kind in (ProgressMade, EpochCompleted):
        return ("type", "trial", *(name for name in names if name != "trial"))
    facts = 0 if kind.__base__ is Body else len(names) - len(kind.__annotations__)
    return (*names[:facts], "type", *names[facts:])


_FIELDS = {kind: tuple((name, f'"{name}":') for name in _names_of(kind)) for kind in get_args(AnyBody)}
"""Name of each field and the text before its value, by kind of body."""

_json = json.JSONEncoder(separators=(",", ":")).encode


_LATER = frozenset(
    {
        "correct", "measured_quality", "evidence", "weights", "trainer", "input", "dataset", "fingerprint",
        "memory_bytes", "cursor", "cursor_hash", "claim", "until", "measures",
        "training_measures", "state", "resumed", "workload", "instance", "input_s", "compiled",
        "lost", "restarts", "returned", "test_images", "test_measures", "exchange_s",
        "correct_trained", "sampled_images", "places",
    }
)  # fmt: skip
"""Left out if None: they say nothing then, and the first version does not know them."""


def decode_record(line: bytes) -> Record:
    """A record from its line. Raises RecordDamagedError with the reason.

    The bytes are checked before anything of them is read.
    """
    text = line.removesuffix(b"\n")
    if not (text[-TAIL_BYTES:].startswith(CHECKSUM_KEY) and text.endswith(b'"}')):
        raise RecordDamagedError("the line does not end with a checksum")
    if b"%08x" % zlib.crc32(text[:-TAIL_BYTES]) != text[-10:-2]:
        raise RecordDamagedError("the checksum does not fit: the line was changed or torn")
    try:
        found = decoded(DECODER, text)
        time_ms = parse_utc(found.time)
    except msgspec.ValidationError as error:
        raise _refused(text, error) from None
    except (ValueError, RecursionError) as error:
        raise RecordDamagedError(f"is not a record: {refusal(error)}") from None
    previous = None if found.previous is UNSET else found.previous
    if (found.version == VERSION) != (previous is not None):
        raise RecordDamagedError(f"a record of version {found.version} {_LINKS[found.version]}")
    if previous is not None and (len(previous) != HASH_LENGTH or previous.strip(HEXADECIMAL)):
        raise RecordDamagedError(f"is not a record: previous: {shortened(previous, 80)} is not a hash")
    if not 0 <= time_ms <= LAST_MS:
        raise RecordOutOfRangeError(f"a record cannot say this: time is {time_ms}")
    # One text for all records of a writer, in place of one for each.
    return Record(intern(found.writer), found.sequence, time_ms, found.monotonic_ms, found.data, previous)


_LINKS = {1: "has a link, which its version does not know", 2: "has no link to the one before"}

_LIMIT = re.compile(r"Expected `(int|str)` (?:of length )?(>=|<=) (-?\d+)")


def _refused(line: bytes, error: msgspec.ValidationError) -> RecordDamagedError:
    """The problem of a line whose checksum fits: most likely another version wrote it."""
    version = _version_of(line)
    if version not in (None, 1, VERSION):
        return RecordDamagedError(
            f"record version {shortened(repr(version), 40)}; this program reads versions 1 to {VERSION}"
        )
    limit = _LIMIT.match(str(error))
    if limit is None:
        return RecordDamagedError(f"is not a record: {refusal(error)}")
    place, kind, (sign, bound) = refusal(error).partition(":")[0], limit.group(1), limit.groups()[1:]
    name = re.sub(r"\[.*", "", place).rpartition(".")[2]
    if kind == "str":
        return RecordOutOfRangeError(f"a record cannot say this: {name} has more than {bound} characters")
    value, word = value_at(line, error), "at least" if sign == ">=" else "at most"
    shown = "has a number" if value is None else f"is {shortened(str(value), 40)}"
    return RecordOutOfRangeError(f"a record cannot say this: {name} {shown}; it must be {word} {bound}")


def _version_of(line: bytes) -> object:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found.get("version") if isinstance(found, dict) else None
