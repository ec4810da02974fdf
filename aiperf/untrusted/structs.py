"""JSON of others that is decoded into structs, and the words of a refusal."""

import json
import re
from typing import Any, TypeVar

import msgspec

from aiperf.untrusted.reading import shortened

T = TypeVar("T")

_PLACE = re.compile(r" - at `\$?(key in )?\.?(.*?)`$")


def decoded(decoder: msgspec.json.Decoder[T], document: bytes) -> T:
    """The struct of a JSON document. Raises msgspec.DecodeError, UnicodeError, RecursionError.

    Python's encoder writes NaN and infinities, which JSON has not: a document with one is parsed by
    Python's parser, and checked by the same types.
    """
    try:
        return decoder.decode(document)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        if b"NaN" not in document and b"Infinity" not in document:
            raise
        return msgspec.convert(_parsed(document), decoder.type)


def _parsed(document: bytes) -> Any:
    try:
        return json.loads(document)
    except ValueError as error:
        raise msgspec.DecodeError(f"JSON is malformed: {error}") from None


def refusal(error: Exception) -> str:
    """The problem of a document: the place in it, and what was expected there."""
    text = str(error)
    found = _PLACE.search(text)
    return shortened(f"{found.group(2)}: {text[: found.start()]}" if found else text)


def value_at(document: bytes, error: Exception) -> Any:
    """The value that an error of a document is about; None if it has no place of its own."""
    found = _PLACE.search(str(error))
    if found is None:
        return None
    try:
        value = json.loads(document)
        for name, number in re.findall(r"(\w+)|\[(\d+)\]", found.group(2)):
            value = value[name] if name in value else value[int(number or name)]
    except (ValueError, KeyError, IndexError, TypeError):
        return None
    return value
