"""Images read from shards of TFRecords at chosen places, without a framework.

Records (`aiperf.untrusted.examples`) are found from the start of the file alone: an image could
contain bytes that look like a record.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from aiperf.config.dataset_manifest import FileEntry
from aiperf.storage.patience import with_patience
from aiperf.untrusted.examples import FOOTER_BYTES, HEADER, features_of, fields, only, varint
from aiperf.untrusted.reading import shortened

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of images in one file."""

    file: str
    skip: int
    take: int


def pieces(files: Sequence[FileEntry], share: range) -> Iterator[Piece]:
    """Yield the parts of `files`, in order, that hold the images of `share`."""
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
    with closing(PatientFile(path)) as file:
        size, position = file.size(), 0
        for number in range(first + count):
            header = file.read(position, HEADER.size)
            # A header that is cut off has no length: that of the file is beyond its end, and is
            # reported.
            length = HEADER.unpack(header)[0] if len(header) == HEADER.size else size
            start = position + HEADER.size
            position = start + length + FOOTER_BYTES
            if position > size:
                raise ValueError(f"{path.name}: ends before image {number} does")
            if number >= first:
                try:
                    yield parse_example(file.read(start, length))
                except ValueError as error:
                    raise ValueError(f"{path.name}, image {number}: {error}") from None


class PatientFile:
    """A file that is read at positions, and opened again if its storage has refused for a moment.

    Unbuffered: records before the first one wanted are skipped, and a buffer would read them.
    Methods raise OSError.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def size(self) -> int:
        """The number of bytes."""
        return self._attempt(lambda descriptor: os.fstat(descriptor).st_size)

    def read(self, position: int, size: int) -> bytes:
        """Read that many bytes; fewer at the end of the file."""
        return self._attempt(lambda descriptor: os.pread(descriptor, size, position))

    def close(self) -> None:
        """Close it if it is open."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            # Linux has freed the number whatever the answer is; nothing was written.
            with suppress(OSError):
                os.close(descriptor)

    def _attempt(self, action: Callable[[int], T]) -> T:
        def attempt() -> T:
            if self._descriptor is None:
                self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                return action(self._descriptor)
            except OSError:
                self.close()  # a stale handle stays stale
                raise

        return with_patience(attempt, self._path)


def parse_example(record: bytes) -> tuple[int, bytes]:
    """Read the label and the encoded image of a `tf.train.Example`. Raises ValueError."""
    try:
        features = features_of(memoryview(record))
    except ValueError as error:
        raise ValueError(f"is no tf.train.Example: it {error}") from None
    missing = [name for name in ("image/encoded", "image/class/label") if name not in features]
    if missing:
        has = ", ".join(shortened(name, 40) for name in sorted(features)[:8]) or "none"
        raise ValueError(f"lacks feature {' and '.join(missing)}; it has {has}")
    label = _label(_values(features, "image/class/label", 3))
    encoded = fields(_values(features, "image/encoded", 1))
    if len(encoded) != 1 or encoded[0][0] != 1 or not isinstance(encoded[0][1], memoryview):
        raise ValueError(f"image/encoded holds {len(encoded)} texts, and one image is wanted")
    return label, bytes(encoded[0][1])


_KINDS = {1: "bytes", 2: "fractions", 3: "whole numbers"}
"""Lists that a Feature may be: bytes_list = 1, float_list = 2, int64_list = 3."""


def _values(features: dict[str, memoryview], name: str, kind: int) -> memoryview:
    """The list of a feature. Raises ValueError if it is of another kind."""
    found = [number for number, _ in fields(features[name])]
    if found != [kind]:
        held = " and ".join(_KINDS.get(number, f"field {number}") for number in found) or "nothing"
        raise ValueError(f"{name} holds {held}, and {_KINDS[kind]} are wanted")
    return only(features[name], kind)


def _label(values: memoryview) -> int:
    found = fields(values)
    if len(found) == 1 and found[0][0] == 1:
        value = found[0][1]
        if isinstance(value, int):
            return _signed(value)
        label, end = varint(value, 0)  # packed, as proto3 writes
        if end == len(value):
            return _signed(label)
    raise ValueError("image/class/label has no number, or more than one")


def _signed(value: int) -> int:
    """Read a number of 64 bits as int64, whose negative values are in two's complement."""
    return value - (1 << 64) if value >> 63 else value
