"""Text from outside, made harmless.

It may hold anything. One function each makes it harmless for a terminal, a line of JSON and a cell
of CSV. Shells have `shlex.quote`, tables of rich `aiperf.cli.console`.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable, Sequence

MESSAGE_BYTES = 2000
"""Most bytes of a message."""

LINE_CHARACTERS = 700
"""Most characters of a line of a message."""

VALUE_CHARACTERS = 80
"""Most characters of a value that a message repeats."""

# C0 and C1 controls, marks and overrides of direction, separators of lines, half surrogate pairs.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}
_BRIEF = reprlib.Repr()
_BRIEF.maxstring = _BRIEF.maxother = VALUE_CHARACTERS
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|nan)")


def has_control(text: str) -> bool:
    """True if a text has characters that steer a terminal or hide what it says."""
    return _CONTROL.search(text) is not None


def for_terminal(text: object) -> str:
    """A text as one line that steers no terminal: ESC is shown as \\x1b, a line feed as \\n."""
    return _CONTROL.sub(_escaped, str(text))


def for_json(document: str) -> str:
    """A JSON document in which such characters are escaped; its line feeds stay."""
    return _CONTROL.sub(lambda found: found[0] if found[0] in "\n\r\t" else f"\\u{ord(found[0]):04x}", document)


def for_cell(value: object) -> object:
    """A cell of CSV that no spreadsheet takes for a formula. Numbers stay numbers."""
    if not isinstance(value, str):
        return value
    text = for_terminal(value)
    formula = value.startswith(("=", "+", "-", "@", "\t", "\r")) and not _NUMBER.fullmatch(value) and value != "-"
    return f"'{text}" if formula else text


def shown(value: object, most: int = VALUE_CHARACTERS) -> str:
    """A value as a message repeats it: its beginning, on one line."""
    if isinstance(value, int) and value.bit_length() > 4 * most:  # too long to be written
        return f"a number of {value.bit_length()} bits"
    try:
        text = for_terminal(repr(value[: most + 1]) if isinstance(value, str | bytes) else _BRIEF.repr(value))
    except (ValueError, RecursionError):
        return f"a {type(value).__name__} that is too large to show"
    return text if len(text) <= most + 2 else f"{text[:most]}..."


def cut(text: str, most: int = LINE_CHARACTERS) -> str:
    """The beginning and the end of a text that is too long."""
    return text if len(text) <= most else f"{text[: most * 2 // 3]} [...] {text[-(most // 3) :]}"


def as_message(lines: Iterable[object], most: int = MESSAGE_BYTES) -> str:
    """Lines for a terminal, none too long, and no more of them than fit."""
    found = [for_terminal(cut(str(line))) for line in lines]
    kept = _fitting(found, most - 40)
    return "\n".join(found[:kept] + ([f"  and {len(found) - kept} more"] if kept < len(found) else []))


def _fitting(lines: Sequence[str], most: int) -> int:
    size = 0
    for place, line in enumerate(lines):
        size += len(line.encode(errors="replace")) + 1
        if size > most:
            return place
    return len(lines)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return _SHORT.get(found[0]) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
