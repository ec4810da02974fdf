"""Images out of shards of TFRecords at chosen places, without a framework.

A record is its length (8 bytes, little-endian), 4 bytes of checksum, the content, and 4 bytes of
checksum (tensorflow/core/lib/io/record_writer.h). Records are found from the start of the file
alone: an image could contain bytes that look like a record. The content is a `tf.train.Example`
(tensorflow/core/example/example.proto) in the encoding of protocol buffers
(https://protobuf.dev/programming-guides/encoding).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from aiperf.config.dataset_manifest import FileEntry

_HEADER = struct.Struct("<Q4x")
_FOOTER_BYTES = 4

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_FIXED_BYTES = {_FIXED64: 8, _FIXED32: 4}

_Field = tuple[int, int | bytes]
"""Number and value of a field: a whole number, or bytes."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of images in one file."""

    file: str
    skip: int
    take: int


def pieces(files: Sequence[FileEntry], share: range) -> Iterator[Piece]:
    """The parts of `files`, in order, that hold the images of `share`."""
    start = 0
    for file in files:
        first, last = max(share.start, start), min(share.stop, start + file.images)
        if first < last:
            yield Piece(file.name, first - start, last - first)
        start += file.images


def read_images(path: Path, first: int, count: int) -> Iterator[tuple[int, bytes]]:
    """Read label and encoded image of `count` records from number `first` on.

    Raises OSError; ValueError naming file and record if there are fewer, or if one is not an image
    with a label.
    """
    with path.open("rb", buffering=0) as stream:
        size = stream.seek(0, 2)
        position = 0
        for number in range(first + count):
            stream.seek(position)
            header = stream.read(_HEADER.size)
            length = _HEADER.unpack(header)[0] if len(header) == _HEADER.size else size
            position += _HEADER.size + length + _FOOTER_BYTES
            if position > size:
                raise ValueError(f"{path.name}: ends before image {number} does")
            if number >= first:
                try:
                    yield parse_example(stream.read(length))
                except ValueError as error:
                    raise ValueError(f"{path.name}, image {number}: {error}") from None


def parse_example(record: bytes) -> tuple[int, bytes]:
    """The label and the encoded image of a `tf.train.Example`.

    Everything must be there exactly once: readers could differ in which of two they take. Raises
    ValueError.
    """
    features: dict[bytes, bytes] = {}
    for _, entry in _fields(_only(record, 1)):
        parts = _fields(entry) if isinstance(entry, bytes) else []
        if [number for number, _ in parts] != [1, 2]:
            raise ValueError("has a feature that is not a name and a value")
        name, value = (part if isinstance(part, bytes) else b"" for _, part in parts)
        if name in features:
            raise ValueError(f"has feature {name.decode(errors='replace')} twice")
        features[name] = value
    try:
        encoded, label = features[b"image/encoded"], features[b"image/class/label"]
    except KeyError as error:
        raise ValueError(f"lacks feature {error.args[0].decode()}") from None
    # Feature: bytes_list = 1, int64_list = 3.
    return _label(_only(label, 3)), _only(_only(encoded, 1), 1)


def _label(values: bytes) -> int:
    fields = _fields(values)
    if len(fields) == 1 and fields[0][0] == 1:
        value = fields[0][1]
        if isinstance(value, int):
            return value
        label, end = _varint(value, 0)  # packed, as proto3 writes
        if end == len(value):
            return label
    raise ValueError("has no label, or more than one")


def _only(message: bytes, number: int) -> bytes:
    """The content of a message that has but one field, of this number. Raises ValueError."""
    fields = _fields(message)
    if len(fields) == 1 and fields[0][0] == number and isinstance(fields[0][1], bytes):
        return fields[0][1]
    raise ValueError(f"has other fields than one of number {number}")


def _fields(message: bytes) -> list[_Field]:
    fields: list[_Field] = []
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        kind = tag & 7
        if kind == _VARINT:
            value, position = _varint(message, position)
            fields.append((tag >> 3, value))
            continue
        if kind == _LENGTH:
            length, position = _varint(message, position)
        elif kind in _FIXED_BYTES:
            length = _FIXED_BYTES[kind]
        else:
            raise ValueError(f"has a field of unknown type {kind}")
        if position + length > len(message):
            raise ValueError("ends within a field")
        fields.append((tag >> 3, message[position : position + length]))
        position += length
    return fields


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(message) and shift < 70:
        byte = message[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position
    raise ValueError("ends within a number")
