"""Images out of shards of TFRecords at chosen places, without a framework.

Records (`aiperf.untrusted.examples`) are found from the start of the file alone: an image could
contain bytes that look like a record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from aiperf.config.dataset_manifest import FileEntry
from aiperf.untrusted.examples import FOOTER_BYTES, HEADER, features_of, fields, only, varint
from aiperf.untrusted.reading import shortened


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
            header = stream.read(HEADER.size)
            length = HEADER.unpack(header)[0] if len(header) == HEADER.size else size
            position += HEADER.size + length + FOOTER_BYTES
            if position > size:
                raise ValueError(f"{path.name}: ends before image {number} does")
            if number >= first:
                try:
                    yield parse_example(stream.read(length))
                except ValueError as error:
                    raise ValueError(f"{path.name}, image {number}: {error}") from None


def parse_example(record: bytes) -> tuple[int, bytes]:
    """The label and the encoded image of a `tf.train.Example`. Raises ValueError."""
    features = features_of(memoryview(record))
    missing = [name for name in ("image/encoded", "image/class/label") if name not in features]
    if missing:
        has = ", ".join(shortened(name, 40) for name in sorted(features)[:8]) or "none"
        raise ValueError(f"lacks feature {' and '.join(missing)}; it has {has}")
    encoded, label = features["image/encoded"], features["image/class/label"]
    # Feature: bytes_list = 1, int64_list = 3.
    return _label(only(label, 3)), bytes(only(only(encoded, 1), 1))


def _label(values: memoryview) -> int:
    found = fields(values)
    if len(found) == 1 and found[0][0] == 1:
        value = found[0][1]
        if isinstance(value, int):
            return _signed(value)
        label, end = varint(value, 0)  # packed, as proto3 writes
        if end == len(value):
            return _signed(label)
    raise ValueError("has no label, or more than one")


def _signed(value: int) -> int:
    """A number of 64 bits as int64, whose negative values are written in two's complement."""
    return value - (1 << 64) if value >> 63 else value
