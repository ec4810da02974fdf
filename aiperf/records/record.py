"""Records of the history list: a line of JSON each, with writer, number, link and checksum.

The link is the hash of the writer's record before (`aiperf.records.chain`). The checksum (CRC-32 of
everything before it in the line) is the last key: it detects torn and damaged lines.
"""

from __future__ import annotations

import dataclasses
import json
import re
import zlib
from json.encoder import encode_basestring_ascii as _text
from typing import Annotated, Any, Literal, NotRequired, get_args

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from aiperf.clock import format_utc, parse_utc
from aiperf.errors import RecordDamagedError, RecordOutOfRangeError
from aiperf.records.bodies import AnyBody, EpochCompleted, ProgressMade
from aiperf.records.decoding.ranges import LAST_MS, out_of_range
from aiperf.records.decoding.typed import decode_typed
from aiperf.untrusted.reading import shortened

VERSION = 2
"""With a chain. Version 1 had none."""

_CHECKSUM_KEY = b',"crc32":"'
_TAIL_BYTES = len(_CHECKSUM_KEY) + 8 + len(b'"}')


class _Line(TypedDict):
    version: Literal[1, 2]
    writer: str
    sequence: int
    time: str
    monotonic_ms: int
    data: Annotated[AnyBody, Field(discriminator="type")]
    previous: NotRequired[Annotated[str, Field(pattern="^[0-9a-f]{64}$")]]


_LINE: TypeAdapter[_Line] = TypeAdapter(_Line)


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """One record: its writer, its number, its times on the writer's clock, and its body.

    `previous` is the hash of the record before; None in version 1, which had no chain.
    """

    writer: str
    sequence: int
    time_ms: int
    monotonic_ms: int
    body: AnyBody
    previous: str | None = None


_NEW = object.__new__
_SET_WRITER, _SET_SEQUENCE, _SET_TIME, _SET_MONOTONIC, _SET_BODY, _SET_PREVIOUS = (
    getattr(Record, item.name).__set__ for item in dataclasses.fields(Record)
)


def checked_record(
    writer: str, sequence: int, time_ms: int, monotonic_ms: int, body: AnyBody, previous: str | None
) -> Record:
    """A record of parts that are checked already. There may be millions of them: without a loop."""
    record = _NEW(Record)
    _SET_WRITER(record, writer)
    _SET_SEQUENCE(record, sequence)
    _SET_TIME(record, time_ms)
    _SET_MONOTONIC(record, monotonic_ms)
    _SET_BODY(record, body)
    _SET_PREVIOUS(record, previous)
    return record


def encode_record(record: Record) -> bytes:
    """The record as one line, checksum last."""
    version = 1 if record.previous is None else VERSION
    document = (
        f'{{"version":{version},"writer":{_text(record.writer)},"sequence":{record.sequence},'
        f'"time":"{format_utc(record.time_ms)}","monotonic_ms":{record.monotonic_ms},"data":{_data_of(record.body)}'
    )
    head = (f'{document},"previous":{_text(record.previous)}' if record.previous is not None else document).encode()
    return head + _CHECKSUM_KEY + b'%08x"}\n' % zlib.crc32(head)


def _data_of(body: AnyBody) -> str:
    """A body as JSON. The fields are checked already: pydantic need not look at them again."""
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


def _names_of(kind: type[Any]) -> tuple[str, ...]:
    names = [field.name for field in dataclasses.fields(kind)]
    # Type and trial come first, so that the start of a line identifies it among millions.
    first = ["type", "trial"] if kind in (ProgressMade, EpochCompleted) else []
    return (*first, *(name for name in names if name not in first))


_FIELDS = {kind: tuple((name, f'"{name}":') for name in _names_of(kind)) for kind in get_args(AnyBody)}
"""By kind of body, the name of each field and the text before its value."""

_json = json.JSONEncoder(separators=(",", ":")).encode


_LATER = frozenset(
    {
        "correct", "measured_quality", "evidence", "weights", "trainer", "input", "dataset", "fingerprint",
        "memory_bytes", "cursor", "cursor_hash", "claim", "until", "measures",
        "training_measures", "workload", "instance",
    }
)  # fmt: skip
"""Left out if None: they say nothing then, and the first version does not know them."""


def decode_record(line: bytes) -> Record:
    """A record from its line. Raises RecordDamagedError with the reason."""
    head, tail = _split_checksum(line)
    if b"%08x" % zlib.crc32(head) != tail:
        raise RecordDamagedError("the checksum does not fit: the line was changed or torn")
    document = head + b"}"
    usual = decode_typed(document)
    if usual is not None:
        return Record(*usual)
    return _decode_strange(document)


def _decode_strange(document: bytes) -> Record:
    """A record that is damaged, or that another writer has put into other words."""
    if _HUGE.search(document) and _has_huge_number(document):
        raise RecordDamagedError("is not a record: a whole number has more than 18 digits")
    try:
        found = _LINE.validate_json(document)
        time_ms = parse_utc(found["time"])
    except ValidationError as error:
        raise RecordDamagedError(_describe(error)) from None
    except ValueError as error:
        raise RecordDamagedError(shortened(f"is not a record: {error!r}")) from None
    if (found["version"] == VERSION) != ("previous" in found):
        raise RecordDamagedError(f"a record of version {found['version']} {_LINKS[found['version']]}")
    if problem := _out_of_range(found, time_ms):
        raise RecordOutOfRangeError(f"a record cannot say this: {problem}")
    return Record(
        found["writer"], found["sequence"], time_ms, found["monotonic_ms"], found["data"], found.get("previous")
    )


def _out_of_range(found: _Line, time_ms: int) -> str:
    for name, value in (("sequence", found["sequence"]), ("time", time_ms)):
        if not 0 <= value <= LAST_MS:
            return f"{name} is {value}"
    if not -LAST_MS <= found["monotonic_ms"] <= LAST_MS:
        return f"monotonic_ms is {found['monotonic_ms']}"
    return out_of_range(found["data"])


_HUGE = re.compile(rb"[\[:,\s]-?\d{19}")
"""Perhaps a number that does not fit into 64 bits: no count or time of a run is one."""


def _has_huge_number(document: bytes) -> bool:
    def check(text: str) -> int:
        if len(text.lstrip("-")) > 18:
            raise OverflowError
        return 0

    try:
        json.loads(document, parse_int=check)
    except OverflowError:
        return True
    except (ValueError, RecursionError):
        return False  # for the decoder to judge
    return False


_LINKS = {1: "has a link, which its version does not know", 2: "has no link to the one before"}


def _describe(error: ValidationError) -> str:
    """The problem of a line whose checksum fits: most likely another version wrote it."""
    problems = error.errors(include_url=False)
    version = next((item["input"] for item in problems if item["loc"] == ("version",)), None)
    if version is not None and not isinstance(version, dict):
        return f"record version {shortened(repr(version), 40)}; this program reads versions 1 to {VERSION}"
    return shortened(f"is not a record: {'.'.join(map(str, problems[0]['loc']))}: {problems[0]['msg']}")


def _split_checksum(line: bytes) -> tuple[bytes, bytes]:
    text = line.rstrip(b"\n")
    head, tail = text[:-_TAIL_BYTES], text[-_TAIL_BYTES:]
    if not tail.startswith(_CHECKSUM_KEY) or not tail.endswith(b'"}'):
        raise RecordDamagedError("the line does not end with a checksum")
    return head, tail[len(_CHECKSUM_KEY) : -2]
