"""The chain of a writer's records: each one carries the hash of the one before.

A record's hash is the SHA-256 of its line without the newline, as 64 hex digits. The first record
carries the hash of `run.json`, so that a chain belongs to one run.
"""

import hashlib
from collections.abc import Iterator, Sequence

from aiperf.run_directory.paths import RunPaths

HASH_LENGTH = 64

# The link stands at a fixed distance from the end of a line: a chain is checked without parsing.
_KEY = b',"previous":"'
_CHECKSUM_BYTES = len(b'","crc32":"01234567"}')
_LINK = slice(-_CHECKSUM_BYTES - HASH_LENGTH, -_CHECKSUM_BYTES)
_KEY_PLACE = slice(-_CHECKSUM_BYTES - HASH_LENGTH - len(_KEY), -_CHECKSUM_BYTES - HASH_LENGTH)


def first_link(paths: RunPaths) -> str:
    """The link of a writer's first record: the hash of `run.json`, or of nothing without one."""
    try:
        return hash_of(paths.run.read_bytes())
    except FileNotFoundError:
        return hash_of(b"")


def hash_of(data: bytes) -> str:
    """SHA-256 as 64 hex digits."""
    return hashlib.sha256(data).hexdigest()


def link_of(line: bytes) -> bytes | None:
    """The hash that a line, without its newline, carries; None in versions without a chain."""
    return line[_LINK] if line[_KEY_PLACE] == _KEY else None


def broken_links(lines: Sequence[bytes], hashes: Sequence[str], first: str) -> Iterator[tuple[int, str, str]]:
    """Lines whose link is not the hash of the line before: number from 1, found, expected.

    `hashes` are those of the lines. A file that begins without a link is of a version without a
    chain: no line of it may have one.
    """
    chained = bool(lines) and link_of(lines[0]) is not None
    for number, (line, before) in enumerate(zip(lines, (first, *hashes), strict=False), start=1):
        link, expected = link_of(line), before.encode() if chained else None
        if link != expected:
            yield number, _shown(link), _shown(expected)


def _shown(link: bytes | None) -> str:
    return "no link" if link is None else link.decode(errors="replace")
