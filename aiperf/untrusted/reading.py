"""Files from other people: bounded before they are parsed, and every failure a short message.

A parser meets what its authors did not think of: nesting that overflows the stack, numbers of a
million digits, sizes that fill the memory. Whatever it raises, users read one line with the name of
the file.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from aiperf.errors import AiperfError, RunDirectoryError
from aiperf.storage.patience import with_patience
from aiperf.untrusted.text import cut, for_terminal

T = TypeVar("T")

MIB = 1 << 20

MOST_REASON = 300
"""Characters of a parser's own words that are shown."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Upper limits for the bytes of a file, and for the depth of its lists, objects and groups."""

    size: int = 16 * MIB
    depth: int = 100


SMALL = Limits()
"""Limits for a file that describes something: a run, a node, a data set, a network."""


def read_outside(
    path: Path,
    parse: Callable[[bytes], T],
    limits: Limits = SMALL,
    error: Callable[[str], AiperfError] = RunDirectoryError,
    what: str = "",
) -> T:
    """The content of a file that others wrote, by a parser of its bytes.

    `what` names what the file should be, as in "a profile". Raises `error` with the name of the
    file, whatever is wrong with it.
    """
    data = read_bounded(path, limits.size, error)
    return parse_outside(data, str(path), parse, limits, error, what)


def parse_outside(
    data: bytes,
    name: str,
    parse: Callable[[bytes], T],
    limits: Limits = SMALL,
    error: Callable[[str], AiperfError] = RunDirectoryError,
    what: str = "",
) -> T:
    """Parse bytes that come from `name`, within the limits of `read_outside`."""
    failure = f"{name}: is not {what}" if what else f"{name}: cannot be read"
    if len(data) > limits.size:
        raise error(f"{failure}: it has {len(data):,} bytes, and at most {limits.size:,} are read")
    if _nested(data, limits.depth):
        raise error(f"{failure}: it is nested more than {limits.depth} deep")
    try:
        return parse(data)
    except AiperfError:
        raise
    except Exception as found:  # of any kind: parsers raise what they come across
        raise error(f"{failure}: {reason_of(found)}") from None


def read_bounded(path: Path, size: int, error: Callable[[str], AiperfError] = RunDirectoryError) -> bytes:
    """The bytes of a file. Raises `error` if it cannot be read, or has more than `size` bytes."""

    def attempt() -> bytes:
        with path.open("rb") as stream:
            # One byte more than allowed shows that the file is too long, whatever its size says: a
            # file in /proc says 0.
            return stream.read(size + 1)

    try:
        data = with_patience(attempt, path)
    except (OSError, ValueError) as found:  # ValueError: a NUL in the path
        raise error(f"{path}: cannot be read: {reason_of(found)}") from None
    except MemoryError:
        raise error(f"{path}: cannot be read: it does not fit into the memory") from None
    if len(data) > size:
        raise error(f"{path}: cannot be read: it has more than {size:,} bytes")
    return data


def json_object(data: bytes) -> dict[str, Any]:
    """A parser: one JSON object. Raises ValueError or RecursionError."""
    document = json.loads(data)
    if not isinstance(document, dict):
        raise ValueError("it is not a JSON object")
    return document


def reason_of(error: BaseException) -> str:
    """The reason that an exception gives, on one line and not long."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        text = ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))
    elif isinstance(error, OSError) and error.strerror:
        text = error.strerror
    elif isinstance(error, KeyError):
        text = f"it lacks {error}"
    elif isinstance(error, RecursionError):
        text = "it is nested too deep"
    elif isinstance(error, MemoryError):
        text = "it does not fit into the memory"
    else:
        text = str(error)
    return shortened(text) or type(error).__name__


def shortened(text: str, most: int = MOST_REASON) -> str:
    """Text that others wrote as a part of a message: one line, harmless, cut."""
    return cut(for_terminal(" ".join(text[: 4 * most].split())), most)


_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
_BRACKET = re.compile(rb"[\[{(\]})]")


def _nested(data: bytes, depth: int) -> bool:
    """True if brackets outside of strings are nested deeper than this."""
    # A quick test for most documents: fewer brackets than levels need no look at their order.
    if sum(map(data.count, (b"[", b"{", b"("))) <= depth:
        return False
    reached = 0
    # Strings may have brackets, in any number, that nest nothing.
    for found in _BRACKET.finditer(_STRING.sub(b'""', data)):
        reached += 1 if found[0] in (b"[", b"{", b"(") else -1
        if reached > depth:
            return True
    return False
