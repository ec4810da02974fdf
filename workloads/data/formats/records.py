"""CosmoFlow's cubes as TFRecords, a file a sample, with gzip or not: read without TensorFlow.

`x` are the bytes of (n, n, n, 4) int16, `y` four float32 (mlcommons/hpc, `cosmoflow/prepare.py`).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from aiperf.config.dataset_manifest import Split
from aiperf.errors import DatasetError, UsageError
from aiperf.untrusted.examples import FOOTER_BYTES, HEADER, features_of, fields, only
from aiperf.untrusted.reading import read_bounded, shortened
from workloads.data.arrays import Rows
from workloads.data.formats.contract import FileLayout, matching
from workloads.data.formats.cosmoflow import COUNT_RULE, PARAMETER_RULE
from workloads.data.formats.fields import Field, value_problems

MOST_BYTES = 256 << 20
"""Most bytes of an unpacked file: a cube of 256^3 has 128 MiB."""

_GZIP = b"\x1f\x8b"
_CHANNELS, _PARAMETERS = 4, 4


@dataclass(frozen=True, slots=True)
class RecordFormat:
    """A format (`Format`) of files of one sample."""

    name: str = "cosmoflow-tfrecord"
    science: str = "cos"
    block: int = 1

    def find(self, folder: Path) -> Mapping[Split, Sequence[str]]:
        """Find the files below `train` and `validation`."""
        return matching(folder, {"train": ("train/*.tfrecord",), "validation": ("validation/*.tfrecord",)})

    def new_files(self, split: Split, samples: int) -> list[tuple[str, int]]:
        """Raise UsageError: new files are HDF5."""
        raise UsageError("TFRecords are read, not written; new files are of the format cosmoflow (HDF5)")

    def open(self, path: Path) -> RecordFile:
        """Read a file. Raises DatasetError naming its problem."""
        try:
            return RecordFile(*_sample(_unpacked(read_bounded(path, MOST_BYTES, DatasetError))))
        except ValueError as error:
            raise DatasetError(f"{path}: {error}") from None

    def write(self, path: Path, layout: FileLayout, blocks: Iterable[Rows]) -> None:
        """Raise UsageError: new files are HDF5."""
        self.new_files("train", layout.samples)


class RecordFile:
    """The one sample of a file, in memory."""

    def __init__(
        self,
        inputs: np.ndarray[tuple[int, ...], np.dtype[np.int16]],
        targets: np.ndarray[tuple[int, ...], np.dtype[np.float32]],
    ) -> None:
        self._rows: Rows = inputs[None], targets[None]
        self.layout = FileLayout(1, tuple(inputs.shape[:-1]))

    def read(self, start: int, stop: int) -> Rows:
        """Give the sample if 0 is between `start` and `stop`."""
        return self._rows[0][start:stop], self._rows[1][start:stop]

    def problems(self, start: int, rows: Rows) -> Iterator[str]:
        """Yield the problems of the values."""
        for field, values in zip(_FIELDS, rows, strict=True):
            for index, words in value_problems(field, values, {}, start):
                yield f"{field.path}, index {index}: {words}"

    def close(self) -> None:
        """No-op: nothing is open."""


_FIELDS = (
    Field("x", ("N", "n", "n", "n", 4), ("int16",), (COUNT_RULE,)),
    Field("y", ("N", 4), rules=(PARAMETER_RULE,)),
)

COSMOFLOW_RECORDS = RecordFormat()


def _unpacked(data: bytes) -> bytes:
    """Unpack gzip up to a limit; give other bytes as they are. Raises ValueError."""
    if not data.startswith(_GZIP):
        return data
    # An object, which stops at a limit: `zlib.decompress` would unpack a bomb.
    unpack = zlib.decompressobj(wbits=31)
    try:
        content = unpack.decompress(data, MOST_BYTES)
    except zlib.error:
        raise ValueError("its gzip is damaged") from None
    if not unpack.eof:
        raise ValueError("its gzip ends early, or is too large")
    return content


def _sample(content: bytes) -> Rows:
    """Read inputs and targets of the only record. Raises ValueError."""
    if len(content) < HEADER.size + FOOTER_BYTES:
        raise ValueError("is shorter than a record")
    (length,) = HEADER.unpack_from(content)
    if HEADER.size + length + FOOTER_BYTES != len(content):
        raise ValueError("is not one record")
    features = features_of(memoryview(content)[HEADER.size : HEADER.size + length])
    missing = [name for name in ("x", "y") if name not in features]
    if missing:
        has = ", ".join(shortened(name, 40) for name in sorted(features)[:8]) or "no features"
        raise ValueError(f"lacks {' and '.join(missing)}; it has {has}")
    # Feature: bytes_list = 1, float_list = 2; both have their values in field 1.
    counts = np.frombuffer(only(only(features["x"], 1), 1), "<i2")
    # A cube root in floats may fall just short of the whole number; the check below is in integers.
    side = round((counts.size / _CHANNELS) ** (1 / 3))
    if counts.size == 0 or side**3 * _CHANNELS != counts.size:
        raise ValueError(f"x has {counts.size} values, which are not a cube of {_CHANNELS} channels")
    values = fields(only(features["y"], 2))
    targets = b"".join(part for number, part in values if number == 1 and isinstance(part, memoryview))
    if len(targets) != 4 * _PARAMETERS:
        raise ValueError(f"y does not have {_PARAMETERS} values")
    cube = counts.astype(np.int16).reshape(side, side, side, _CHANNELS)
    return cube, np.frombuffer(targets, "<f4").astype(np.float32)
