"""Checksums: JSON objects that end with the CRC-32 of all before it, as records do.

A flipped bit often leaves JSON that can be read, with another meaning. Files of earlier versions
have no checksums.
"""

import json
import re
import zlib
from collections.abc import Mapping
from typing import Any

from aiperf.untrusted.reading import json_object

KEY = "crc32"
"""The key of the checksum, the last one."""

_TAIL = re.compile(rb',(\s+)"([^"]{5})": "([^"]{8})"\s*\}\s*$')
_LONGEST_TAIL = 64


def sealed(document: Mapping[str, Any], indent: int | None = None) -> bytes:
    """An object that is not empty as JSON with its checksum, and without a newline at its end."""
    head = json.dumps(document, indent=indent)[:-1].rstrip("\n").encode()
    space = "\n" + " " * indent if indent else " "
    end = "\n}" if indent else "}"
    return head + f',{space}"{KEY}": "{zlib.crc32(head):08x}"{end}'.encode()


def is_sealed(data: bytes) -> bool:
    """True if an object has a checksum, fitting or not."""
    return _TAIL.search(data[-_LONGEST_TAIL:]) is not None


def is_broken(data: bytes) -> bool:
    """True if an object has a checksum that does not fit."""
    found = _TAIL.search(data[-_LONGEST_TAIL:])
    if found is None:
        return False
    # The match is counted from the beginning of the tail.
    head = data[: max(0, len(data) - _LONGEST_TAIL) + found.start()]
    return (found[2], found[3]) != (KEY.encode(), b"%08x" % zlib.crc32(head))


def without_seal(document: Mapping[str, Any]) -> dict[str, Any]:
    """The object to which the checksum was added."""
    return {key: value for key, value in document.items() if key != KEY}


def sealed_object(data: bytes) -> dict[str, Any]:
    """Read one object, with a checksum that fits or without one; give it without it.

    Raises ValueError or RecursionError.
    """
    if is_broken(data):
        raise ValueError("its checksum does not fit: the file was changed or torn")
    return without_seal(json_object(data))
