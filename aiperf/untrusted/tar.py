"""The members of a tar archive, read so that no header can make it slow.

Python's own reader follows negative sizes back to the beginning for ever (CVE-2025-8194, before
3.11.14), and reads extended headers of any length into the memory. An archive that this program
needs has plain files and folders only.
"""

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

BLOCK = tarfile.BLOCKSIZE

MOST_HEADER = 64 * 1024
"""Bytes of an extended header, which holds a long name."""

_FILES = (tarfile.REGTYPE, tarfile.AREGTYPE)


class Stream(Protocol):
    """A file or its unpacked content, which is read forwards."""

    def read(self, size: int, /) -> bytes:
        """The next bytes, fewer at the end."""

    def seek(self, offset: int, /) -> int:
        """Go to a place, from the start."""


class TarError(ValueError):
    """An archive that is damaged, or that holds what is not needed."""


@dataclass(frozen=True, slots=True)
class Member:
    """A file or folder of an archive. `offset`: of its bytes, from the start of the stream."""

    name: str
    offset: int
    size: int
    folder: bool = False


def tar_members(stream: Stream, end: int, start: int = 0) -> Iterator[Member]:
    """The members of the archive that begins at `start` of a stream, none beyond `end`.

    Between two of them the caller may read the stream up to the end of the first one's bytes.
    Raises TarError, and OSError.
    """
    position, given = start, dict[str, str]()
    while True:
        if position + BLOCK > end:
            raise TarError("it is larger than it may be, or ends before its end")
        stream.seek(position)
        block = stream.read(BLOCK)
        # An archive ends with two blocks of zeros, of which the first one says enough.
        if block == bytes(BLOCK):
            return
        header = _header(block)
        kind, size = header.type, _size(given.get("size"), header.size)
        position += BLOCK
        # A member fills whole blocks (POSIX, ustar).
        following = position + -(-size // BLOCK) * BLOCK
        if following > end:
            raise TarError(f"{header.name[:100]!r} is larger than it may be, or than the archive is")
        if kind in (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME):
            given = {**given, **_extended(kind, _read(stream, size))}
        elif kind in (*_FILES, tarfile.DIRTYPE):
            yield Member(given.get("path", header.name), position, size, kind == tarfile.DIRTYPE)
            # An extended header is for the next member only.
            given = {}
        else:
            raise TarError(f"{given.get('path', header.name)[:200]!r} is neither a file nor a folder")
        position = following


def _header(block: bytes) -> tarfile.TarInfo:
    if len(block) < BLOCK:
        raise TarError("it ends before its end")
    try:
        return tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except (tarfile.HeaderError, ValueError) as error:
        raise TarError(f"a header is damaged: {error}") from None


def _size(given: str | None, own: int) -> int:
    if given is not None:
        own = int(given) if given.isdecimal() and len(given) < 19 else -1
    if own < 0:
        raise TarError("the size of a member is negative")
    return own


def _read(stream: Stream, size: int) -> bytes:
    if size > MOST_HEADER:
        raise TarError("a name is too long")
    data = stream.read(size)
    if len(data) < size:
        raise TarError("it ends before its end")
    return data


def _extended(kind: bytes, data: bytes) -> dict[str, str]:
    """The path and the size that an extended header gives to the next member (POSIX, "pax")."""
    if kind == tarfile.GNUTYPE_LONGNAME:
        return {"path": data.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")}
    found: dict[str, str] = {}
    while kind == tarfile.XHDTYPE and data:
        # A line of the header: its length in digits, a space, KEY=VALUE, and a line feed. The
        # length counts all of these.
        length, space, _ = data[:20].partition(b" ")
        number = int(length) if space and length.isdigit() else 0
        key, equals, value = data[len(length) + 1 : number - 1].partition(b"=")
        if not equals or number > len(data) or data[number - 1 : number] != b"\n":
            raise TarError("an extended header is damaged")
        if key.startswith(b"GNU.sparse"):
            raise TarError("a file with holes is not needed")
        if key in (b"path", b"size"):
            found[key.decode()] = value.decode("utf-8", "surrogateescape")
        data = data[number:]
    return found
