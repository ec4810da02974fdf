"""Shards of TFRecords: their names, their checksums, writing and reading without TensorFlow.

The format is that of `aiperf.untrusted.examples`; the checksums of its records are CRC-32C, rotated
and shifted (tensorflow/core/lib/hash/crc32c.h).
"""

import hashlib
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import google_crc32c

from aiperf.config.dataset_manifest import FileEntry, Split
from aiperf.config.fingerprints import ENTRY_BYTES, image_entry
from aiperf.untrusted.recognition import described_file
from workloads.data.records import parse_example
from workloads.datasets.content import FileContent

SHARD_PATTERN = re.compile(r"(train|validation)-(\d{5})-of-(\d{5})")

HASH_BLOCK_BYTES = 1 << 20


def shard_name(split: Split, number: int, count: int) -> str:
    """The usual name of a shard, such as train-00000-of-01024."""
    return f"{split}-{number:05d}-of-{count:05d}"


def sha256_of(path: Path) -> str:
    """Compute the checksum of a file. Raises OSError."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(HASH_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


LENGTH, CHECKSUM = struct.Struct("<Q"), struct.Struct("<I")


class ForeignRecordError(ValueError):
    """A whole record without an image and a label as AIPerf reads them."""


@dataclass(frozen=True, slots=True)
class Image:
    """One encoded RGB JPEG and its label, from 1."""

    name: str
    label: int
    encoded: bytes


def write_shard(path: Path, images: Iterable[Image]) -> FileContent:
    """Write one shard, whole or not at all; give its content. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    entries = bytearray()
    try:
        with part.open("wb") as stream:
            for image in images:
                record = _example(image)
                length = LENGTH.pack(len(record))
                stream.write(length + checksum(length) + record + checksum(record))
                entries += image_entry(image.encoded, image.label)
        # A shard is there whole or not at all, so that its size is enough to see that it is
        # finished.
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    count = len(entries) // ENTRY_BYTES
    entry = FileEntry(name=path.name, images=count, size_bytes=path.stat().st_size, sha256=sha256_of(path))
    return FileContent(entry, bytes(entries))


def read_shard(path: Path) -> Iterator[tuple[int, bytes]]:
    """Read label and encoded image of every record, and compare its checksums.

    Raises OSError; ValueError if a record is damaged; ForeignRecordError if it is not an image with
    a label.
    """
    with path.open("rb") as stream:
        left = path.stat().st_size
        while length := stream.read(LENGTH.size):
            if stream.read(CHECKSUM.size) != checksum(length):
                # The first record: a file that begins wrongly is probably of another kind.
                if left == path.stat().st_size and (found := _other_format(path)):
                    raise ForeignRecordError(f"is not a record of TFRecord: the file is {found}")
                raise ValueError("a record's length is not that of its checksum")
            size = int(LENGTH.unpack(length)[0])
            left -= LENGTH.size + 2 * CHECKSUM.size + size
            if left < 0:
                raise ValueError("ends within a record")
            record = stream.read(size)
            if stream.read(CHECKSUM.size) != checksum(record):
                raise ValueError("a record's content is not that of its checksum")
            try:
                yield parse_example(record)
            except ValueError as error:
                raise ForeignRecordError(str(error)) from None


def _other_format(path: Path) -> str | None:
    found = described_file(path)
    known = found not in ("of no known format", "nothing but zeros") and not found.startswith("records of")
    way_out = "; only files that are not packed are read" if found.startswith("packed") else ""
    return f"{found}{way_out}" if known else None


def checksum(data: bytes) -> bytes:
    """The 4 bytes that follow `data` in a file of TFRecords."""
    value = google_crc32c.value(data)
    return CHECKSUM.pack(((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _example(image: Image) -> bytes:
    """Encode the image as `tf.train.Example`.

    It has Features as field 1, which has an entry of a name (1) and a Feature (2) for each.
    """
    features = {
        b"image/encoded": _bytes(image.encoded),
        b"image/format": _bytes(b"JPEG"),
        b"image/filename": _bytes(image.name.encode(errors="backslashreplace")),
        b"image/class/label": _field(3, _field(1, _varint(image.label))),
    }
    entries = (_field(1, _field(1, name) + _field(2, feature)) for name, feature in features.items())
    return _field(1, b"".join(entries))


def _bytes(value: bytes) -> bytes:
    """Encode a Feature of one BytesList."""
    return _field(1, _field(1, value))


def _field(number: int, content: bytes) -> bytes:
    """Encode a field of type LEN: its number and type, its length, its content."""
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    """Encode a whole number from 0, seven bits a byte, the lowest first."""
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(parts + bytes([value]))
