"""Text from outside, made harmless.

It may hold anything. One function each makes it harmless for a terminal, a line of JSON and a cell
of CSV. Shells have `shlex.quote`, tables of rich `aiperf.cli.console`.
"""

import json
import re
import reprlib
from collections.abc import Callable, Iterable, Sequence

MESSAGE_BYTES = 2000
"""Upper limit for the bytes of a message."""

LINE_CHARACTERS = 700
"""Upper limit for the characters of a line of a message."""

VALUE_CHARACTERS = 80
"""Upper limit for the characters of a value that a message repeats."""

# Assigned by Unicode 15 and 15.1: Python 3.12 and 3.13 take these for printable, Python 3.11 does
# not. A message that one of them writes into a record is read by all.
_NEWER = re.compile(
    "[\u0cf3\u0ece\u2ffc-\u2fff\u31ef\U00010efd-\U00010eff\U0001123f-\U00011241\U00011b00-\U00011b09"
    "\U00011f00-\U00011f59\U0001342f\U00013440-\U00013455\U0001b132\U0001b155\U0001d2c0-\U0001d2d3"
    "\U0001df25-\U0001df2a\U0001e030-\U0001e06d\U0001e08f\U0001e4d0-\U0001e4f9\U0001f6dc\U0001f774-\U0001f776"
    "\U0001f77b-\U0001f77f\U0001f7d9\U0001fa75-\U0001fa77\U0001fa87\U0001fa88\U0001faad-\U0001faaf"
    "\U0001fabb-\U0001fabd\U0001fabf\U0001face\U0001facf\U0001fada\U0001fadb\U0001fae8\U0001faf7\U0001faf8"
    "\U0002b739\U0002ebf0-\U0002ee5d\U00031350-\U000323af]"
)

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
    """A text as one line of characters that every supported Python takes for printable.

    The others are escaped as in Python: ESC as \\x1b, a line feed as \\n, U+14647, which is not
    assigned, as \\U00014647. So nothing steers the terminal, or is shown as nothing.
    """
    return _shown_by(_escaped, str(text))


def for_json(document: str) -> str:
    """A JSON document in which such characters are escaped; its line feeds stay."""
    return _shown_by(_escaped_in_json, document)


def is_printable(text: str) -> bool:
    """True if every supported Python takes all characters for printable (`str.isprintable`)."""
    return text.isprintable() and (text.isascii() or not _NEWER.search(text))


def _shown_by(escaped: Callable[[str], str], text: str) -> str:
    return text if is_printable(text) else "".join(c if is_printable(c) else escaped(c) for c in text)


def for_cell(value: object) -> object:
    """A cell of CSV that no spreadsheet takes for a formula. Numbers stay numbers."""
    if not isinstance(value, str):
        return value
    text = for_terminal(value)
    # Spreadsheets take these beginnings for formulas, which can run programs (OWASP, CSV
    # injection).
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
    # The rest is for the line that says how many more there are.
    kept = _fitting(found, most - 40)
    return "\n".join(found[:kept] + ([f"  and {len(found) - kept} more"] if kept < len(found) else []))


def _fitting(lines: Sequence[str], most: int) -> int:
    size = 0
    for place, line in enumerate(lines):
        size += len(line.encode(errors="replace")) + 1
        if size > most:
            return place
    return len(lines)


def _escaped(character: str) -> str:
    code = ord(character)
    plain = f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return _SHORT.get(character, plain)


def _escaped_in_json(character: str) -> str:
    return character if character in "\n\r\t" else json.dumps(character)[1:-1]
