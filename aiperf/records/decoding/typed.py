"""Lines decoded by msgspec into typed values, several times faster than pydantic does.

What is decoded here is what `aiperf.records.record.decode_record` decodes without it: types,
ranges and lengths are checked while a line is parsed, unknown keys are refused. Every line that is
not as usual, damaged or only written in another way, is left to pydantic, which also words the
problem.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from operator import attrgetter
from sys import intern
from types import GenericAlias, NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from aiperf.clock import parse_utc
from aiperf.records.bodies import AnyBody, EpochCompleted
from aiperf.records.decoding.ranges import LAST_MS, LONGEST_NAME, NAMES, OF_FIELD

_FIRST_HUGE = 10**18
"""Least number with 19 digits, which no whole number of a record may have: fractions that are as
large are left to pydantic, too.
"""

_HEXADECIMAL = "0123456789abcdef"
_HASH_LENGTH = 64


Parts = tuple[str, int, int, int, AnyBody, str | None]
"""The parts of `aiperf.records.record.Record`, in its order."""


def decode_typed(document: bytes) -> Parts | None:
    """The content of a line without its checksum, as a whole JSON object; None if it is unusual."""
    try:
        found = _DECODER.decode(document)
        time_ms = parse_utc(found.time)
    except (ValueError, RecursionError):  # also msgspec's own
        return None
    previous, chained = found.previous, found.previous is not msgspec.UNSET
    if chained != (found.version == 2) or not 0 <= time_ms <= LAST_MS:
        return None
    if chained and (len(previous) != _HASH_LENGTH or previous.strip(_HEXADECIMAL)):
        return None
    body = _MAKERS[type(found.data)](found.data)
    return intern(found.writer), found.sequence, time_ms, found.monotonic_ms, body, previous if chained else None


def decode_body(document: bytes) -> AnyBody | None:
    """The data of a line as a whole JSON object; None if they are unusual."""
    try:
        found = _BODY_DECODER.decode(document)
    except (ValueError, RecursionError):
        return None
    return _MAKERS[type(found)](found)


def decode_epochs(documents: Sequence[bytes]) -> list[Any] | None:
    """The fields of the data of completed epochs; None if any are unusual."""
    try:
        found: list[Any] = _EPOCH_DECODER.decode_lines(b"\n".join(documents))
    except (ValueError, RecursionError):
        return None
    return found if len(found) == len(documents) else None


def epoch_of(**fields: Any) -> EpochCompleted:
    """A completed epoch of fields that are checked already."""
    return _MAKERS[_STRUCTS[EpochCompleted]](_STRUCTS[EpochCompleted](**fields))  # type: ignore[return-value]


def _limited(name: str, kind: Any) -> Any:
    """The type of a field with its range or its length."""
    origin, parts = get_origin(kind), get_args(kind)
    if kind is int:
        low, high = OF_FIELD.get(name, (1 - _FIRST_HUGE, _FIRST_HUGE - 1))
        return Annotated[int, msgspec.Meta(ge=low, le=high)]
    if kind is float:
        return Annotated[float, msgspec.Meta(gt=-float(_FIRST_HUGE), lt=float(_FIRST_HUGE))]
    if kind is str and name in NAMES:
        return Annotated[str, msgspec.Meta(max_length=LONGEST_NAME)]
    if origin is UnionType:
        return Union[tuple(_limited(name, part) for part in parts)]  # noqa: UP007
    if origin in (tuple, dict):
        of_parts = (_limited(name, parts[0]), ...) if origin is tuple else (str, _limited(name, parts[1]))
        return GenericAlias(origin, of_parts)
    if kind not in (str, bool, NoneType) and origin is not Literal:
        raise TypeError(f"{name} is {kind}")
    return kind


def _struct(kind: type[Any]) -> type[msgspec.Struct]:
    """A type of msgspec with the fields of a body, which `type` names."""
    hints, fields = get_type_hints(kind), []
    for field in dataclasses.fields(kind):
        if field.name != "type":
            default = msgspec.NODEFAULT if field.default is dataclasses.MISSING else field.default
            fields.append((field.name, _limited(field.name, hints[field.name]), default))
    return msgspec.defstruct(
        kind.__name__, fields, tag_field="type", tag=_tag_of(kind), kw_only=True, forbid_unknown_fields=True, gc=False
    )


def _tag_of(kind: type[Any]) -> str:
    return next(str(field.default) for field in dataclasses.fields(kind) if field.name == "type")


def _maker(kind: type[Any]) -> Callable[[Any], AnyBody]:
    """A function from a decoded struct to the body, whose fields are checked already."""
    names = [field.name for field in dataclasses.fields(kind) if field.name != "type"]
    values = attrgetter(*names) if len(names) > 1 else lambda found: (getattr(found, names[0]),)
    setters = [getattr(kind, name).__set__ for name in names]
    set_type, new, tag = kind.type.__set__, object.__new__, _tag_of(kind)

    def make(found: Any) -> AnyBody:
        body = new(kind)
        for set_, value in zip(setters, values(found), strict=True):
            set_(body, value)
        set_type(body, tag)
        return body  # type: ignore[no-any-return]

    return make


_STRUCTS = {kind: _struct(kind) for kind in get_args(AnyBody)}
_MAKERS = {struct: _maker(kind) for kind, struct in _STRUCTS.items()}
_BODY_DECODER: Any = msgspec.json.Decoder(Union[tuple(_STRUCTS.values())])  # noqa: UP007
_EPOCH_DECODER: Any = msgspec.json.Decoder(_STRUCTS[EpochCompleted])
_MOMENT_MS = Annotated[int, msgspec.Meta(ge=-LAST_MS, le=LAST_MS)]
_LINE = msgspec.defstruct(
    "Line",
    [
        ("version", Literal[1, 2]), ("writer", str), ("sequence", Annotated[int, msgspec.Meta(ge=0, le=LAST_MS)]),
        ("time", str), ("monotonic_ms", _MOMENT_MS), ("data", Union[tuple(_STRUCTS.values())]),  # noqa: UP007
        ("previous", str | msgspec.UnsetType, msgspec.UNSET),
    ],
    forbid_unknown_fields=True, gc=False,
)  # fmt: skip
_DECODER: Any = msgspec.json.Decoder(_LINE)
