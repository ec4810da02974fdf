"""TOML: read within limits, and written."""

import json
import math
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aiperf.errors import ConfigError, UsageError
from aiperf.untrusted.documents import read_document
from aiperf.untrusted.text import shown

MOST_BYTES = 256 * 1024
"""Largest file: 10,000 hosts with names of 24 letters."""

MOST_PARTS = 16
"""Upper limit for the parts of a dotted key: the parser needs memory for their square."""

_LONG_KEY = re.compile(r"""(?:(?:(?<![\w-])[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+)""" f"{{{MOST_PARTS}}}")

_KEY = re.compile(r"""\s*\[{0,2}\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*[]=]""")
"""The key of a line: of a value, or of a table."""


def read_toml(file: Path) -> dict[str, Any]:
    """Read a file. Raises ConfigError if it is not TOML, or too large."""
    try:
        found: dict[str, Any] = read_document(file, parse_toml, "TOML", MOST_BYTES)
    except UsageError as error:
        raise ConfigError(list(error.problems)) from None
    return found


def parse_toml(text: str) -> dict[str, Any]:
    """The document of a text.

    Raises ValueError, whatever the parser raises: some texts nest too deep for it, some numbers are
    too long.
    """
    if len(text) > MOST_BYTES:
        raise ValueError(f"it is longer than {MOST_BYTES} characters")
    if _LONG_KEY.search(text):
        raise ValueError(f"it has a key of more than {MOST_PARTS} parts")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(_twice(text, str(error)) or str(error)) from None
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _twice(text: str, reason: str) -> str | None:
    """Words about a key that comes twice, of which the parser says the place; else None."""
    if not reason.startswith(("Cannot overwrite a value", "Cannot declare", "Duplicate inline table key")):
        return None
    lines = text.splitlines()
    place = re.search(r"\(at line (\d+),", reason)
    # The place is the end of the value, which may be lines below its key.
    for number in range(min(int(place[1]) if place else len(lines), len(lines)), 0, -1):
        key = _KEY.match(lines[number - 1])
        if key is not None:
            name = re.search(r"key '(.+)' \(", reason)
            return f"line {number}: the key {shown(name[1] if name else key[1].strip())} comes twice; name it once"
    return None


def toml_value(value: Any) -> str:
    """A text, number, truth value, list or table as TOML, on one line."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{toml_value(key)} = {toml_value(own)}' for key, own in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    # JSON's escapes of half characters are not TOML's, and TOML escapes one more character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def as_toml(settings: Mapping[str, Any]) -> str:
    """Settings by dotted key as TOML. The values are texts, numbers, lists and tables of them."""
    sections: dict[str, list[str]] = {}
    for key, value in settings.items():
        section, _, name = key.partition(".")
        sections.setdefault(section, []).append(f"{name} = {toml_value(value)}\n")
    return "\n".join(f"[{section}]\n{''.join(lines)}" for section, lines in sections.items())
