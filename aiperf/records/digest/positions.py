"""Places in a digest, and the files in which they are.

A cursor into a digest (`aiperf.records.cursor`) has one head, "digest/<primary>", with the number
of the last entry that was read, from 0, and its hash.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from aiperf.records.cursor import Cursor

PREFIX = "digest/"
"""Prefix of a digest's head in a cursor; no writer of the history list has such a name."""

SEGMENT_ENTRIES = 4096
"""Entries of a full segment, about 2 MB: which file an entry is in follows from its number."""


def head_name(primary: str) -> str:
    """The name of a digest in a cursor."""
    return PREFIX + primary


def cursor_at(primary: str, number: int, digest: str) -> Cursor:
    """The cursor behind entry `number`, whose hash is `digest`; of nothing if it is negative."""
    return Cursor({head_name(primary): (number, digest)} if number >= 0 else {})


def primary_of(names: Iterable[str]) -> str | None:
    """The primary whose digest a cursor with these heads is of; None if it is of raw records."""
    return next((name.removeprefix(PREFIX) for name in sorted(names) if name.startswith(PREFIX)), None)


def is_primary(name: str) -> bool:
    """True if a primary may have this name, and so a folder of a digest."""
    return re.fullmatch(r"primary-[1-9]\d{0,8}", name, re.ASCII) is not None
