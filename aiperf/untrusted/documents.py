"""Documents that a user names on the command line, in TOML, JSON or YAML."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiperf.errors import UsageError
from aiperf.untrusted.reading import Limits, read_outside
from aiperf.untrusted.text import shown

PATH_CHARACTERS = 300
"""Upper limit for the characters of a path in a message."""


def read_document(file: Path, parse: Callable[[str], Any], language: str, most_bytes: int) -> Any:
    """The document of a file, which may begin with a byte order mark.

    Raises UsageError with the file's name and the reason.
    """
    return read_outside(file, lambda data: parse(data.decode("utf-8-sig")), Limits(most_bytes), UsageError, language)


def read_json(file: Path, most_bytes: int) -> Any:
    """A document of JSON. Raises UsageError, also for an object that has a key twice."""
    return read_document(file, lambda text: json.loads(text, object_pairs_hook=_unique), "JSON", most_bytes)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {shown(key)} comes twice; name it once")
        found[key] = value
    return found
