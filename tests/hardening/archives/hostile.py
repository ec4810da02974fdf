"""Archives that are not as `aiperf export` makes them, from an honest one."""

import gzip
import io
import random
import tarfile
import zlib
from collections.abc import Iterator

HISTORY = "run/history/primary-1.jsonl"


def plain(name: str, content: bytes = b"", **fields: object) -> bytes:
    """A member with fields that no honest writer gives it."""
    member = tarfile.TarInfo(name)
    member.size = len(content)
    for field, value in fields.items():
        setattr(member, field, value)
    header = member.tobuf(tarfile.GNU_FORMAT)
    return header + content + bytes(-len(content) % tarfile.BLOCKSIZE)


def sized(name: str, size: int) -> bytes:
    """The header of a member that claims a size, in the form of large and negative ones."""
    header = bytearray(tarfile.TarInfo(name).tobuf(tarfile.GNU_FORMAT))
    header[124:136] = size.to_bytes(12, signed=True) if size < 0 else b"\x80" + size.to_bytes(11)
    return summed(bytes(header))


def summed(block: bytes, kind: bytes = b"") -> bytes:
    """A header with a checksum that fits, and perhaps another kind."""
    header = bytearray(block[:512])
    header[156:157] = kind or header[156:157]
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


def extended(records: bytes, name: str = HISTORY, content: bytes = b"") -> bytes:
    """A member behind a pax header with these records."""
    return plain("pax", records, type=tarfile.XHDTYPE) + plain(name, content)


def record(key: str, value: str) -> bytes:
    body = f" {key}={value}\n".encode()
    length = len(body) + 1
    while len(str(length)) + len(body) != length:
        length = len(str(length)) + len(body)
    return str(length).encode() + body


END = bytes(1024)

ADDED: dict[str, bytes] = {
    "a path that leads out": plain("run/../../out", b"x"),
    "an absolute path": plain("/tmp/out", b"x"),
    "a symbolic link": plain("run/run.json", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
    "a hard link": plain("run/run.json", type=tarfile.LNKTYPE, linkname="/etc/passwd"),
    "a character device": plain("run/history/x-1.jsonl", type=tarfile.CHRTYPE),
    "a block device": plain("run/history/x-1.jsonl", type=tarfile.BLKTYPE),
    "a pipe": plain("run/history/x-1.jsonl", type=tarfile.FIFOTYPE),
    "a sparse file": plain("run/telemetry/x.jsonl", type=tarfile.GNUTYPE_SPARSE),
    "an unknown kind": plain("run/telemetry/x.jsonl", type=b"Z"),
    "a program": plain("run/run.sh", b"#!/bin/sh\n", mode=0o4755),
    "a log": plain("run/logs/primary.log", b"x"),
    "a file of weights": plain("run/models/0123456789abcdef/weights-000001.npz", b"x"),
    "a file outside of the run": plain("other/run.json", b"{}"),
    "a file at the top": plain("run.json", b"{}"),
    "no name": plain("", b"x"),
    "an empty part of a name": plain("run//etc", b"x"),
    "a name with an escape": plain("run/report/\x1b[2J.html", b"x"),
    "a name with a newline": plain("run/report/a\nb.html", b"x"),
    "a name that is not UTF-8": plain("run/report/\udcff\udcfe.html", b"x"),
    "folders in folders": plain("run/report/" + "a/" * 30 + "b", b"x"),
    "a long name": extended(record("path", "run/report/" + "a" * 5000)),
    "a negative size": sized("run/report/x", -512),
    "a negative size, to the beginning": sized("run/report/x", -(1 << 40)),
    "a negative size in an extended header": extended(record("size", "-512")),
    "a size that is no number": extended(record("size", "1e3")),
    "a size of 5,000 digits": extended(record("size", "9" * 5000)),
    "a huge size": sized("run/report/x", 1 << 62),
    "a huge size in an extended header": extended(record("size", str(1 << 62))),
    "a huge extended header": summed(sized("pax", 1 << 30), kind=tarfile.XHDTYPE),
    "an extended header without its end": plain("pax", b"99999 path=x\n", type=tarfile.XHDTYPE),
    "an extended header of nothing": plain("pax", b"0 path=x\n", type=tarfile.XHDTYPE),
    "an extended header with holes": extended(record("GNU.sparse.major", "1")),
    "a header that is noise": bytes(range(256)) * 2,
    "a header with another checksum": plain("run/report/x", b"x").replace(b"ustar", b"ustaR"),
}
"""Blocks that come before the end of an honest archive, whose checksums do not name them."""


def with_members(honest: bytes, blocks: bytes) -> bytes:
    """An archive with further blocks before its end."""
    return gzip.compress(_body(honest) + blocks + END, 1)


def _body(honest: bytes) -> bytes:
    content = gzip.decompress(honest)
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        last = archive.getmembers()[-1]
    return content[: last.offset_data + -(-last.size // 512) * 512]


def twice(honest: bytes) -> bytes:
    """Every member comes twice."""
    return gzip.compress(_body(honest) * 2 + END, 1)


def bomb(name: str, mebibytes: int, unit: bytes) -> bytes:
    """An archive of one member, the unit again and again."""
    packer = zlib.compressobj(9, wbits=31)
    block = unit * ((1 << 20) // len(unit))
    packed = [packer.compress(sized(name, mebibytes << 20)), *(packer.compress(block) for _ in range(mebibytes))]
    return b"".join([*packed, packer.compress(END), packer.flush()])


def many_members(count: int) -> bytes:
    """An archive of empty files with names that a run may have."""
    packer = zlib.compressobj(9, wbits=31)
    return b"".join(packer.compress(plain(f"run/evidence/trial-{n:06d}.rows")) for n in range(count)) + packer.flush()


def damaged(honest: bytes, number: int) -> Iterator[tuple[str, bytes]]:
    """Cut, flipped and mixed forms, the same ones for a number."""
    rng = random.Random(number)
    content = gzip.decompress(honest)
    for _ in range(4):
        place, bit = rng.randrange(len(honest)), 1 << rng.randrange(8)
        yield f"packed cut at {place}", honest[:place]
        yield f"packed flipped at {place}", _flipped(honest, place, bit)
        place = rng.randrange(len(content))
        yield f"cut at {place}", gzip.compress(content[:place], 1)
        yield f"flipped at {place}", gzip.compress(_flipped(content, place, bit), 1)
        block = 512 * rng.randrange(len(content) // 512)
        other = 512 * rng.randrange(len(content) // 512)
        moved = content[:block] + content[other : other + 512] + content[block + 512 :]
        yield f"block {other} at {block}", gzip.compress(moved, 1)


def _flipped(data: bytes, place: int, bit: int) -> bytes:
    return data[:place] + bytes([data[place] ^ bit]) + data[place + 1 :]
