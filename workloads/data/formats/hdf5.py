"""Files of HDF5 (The HDF Group) that hold samples along the first axis of their datasets."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py._objects import phil
from isal import isal_zlib
from numpy.typing import NDArray

from aiperf.config.dataset_manifest import Split
from aiperf.errors import DatasetError
from aiperf.untrusted.reading import reason_of
from workloads.data.arrays import Rows
from workloads.data.formats.contract import FileLayout
from workloads.data.formats.fields import Field, Sizes, Values, dataset_of, shape_problem, value_problems

# Chunks of HDF5 unpacked outside of HDF5's lock, so that several threads do it in parallel.
#
# h5py lets one thread of a process into the library at a time, unpacking included. The packed bytes
# of a chunk are quickly read; ISA-L (a zlib in half of the time) and NumPy, which unpack them here,
# release Python's lock.

_GZIP, _SHUFFLE = "gzip", "shuffle"

_AT_ONCE = 1 << 15
"""Number of values that are put together at a time, so that they stay in a core's cache."""


def unpacks(dataset: h5py.Dataset) -> bool:
    """True if each sample of a dataset is one chunk that `sample_chunk` can unpack."""
    chunks, filters = dataset.chunks, list(dataset._filters)
    return bool(
        dataset.ndim > 1
        and dataset.dtype.itemsize in (1, 2, 4, 8)
        # A chunk of several samples is HDF5's own work: it caches what it unpacks.
        and chunks == (1, *dataset.shape[1:])
        and filters in ([], [_GZIP], [_SHUFFLE, _GZIP])
        and dataset.dtype.byteorder in ("<", "=", "|")
    )


def sample_chunk(dataset: h5py.Dataset, index: int) -> NDArray[Any]:
    """Read one sample of a dataset of which `unpacks` is true, without the first axis.

    Raises ValueError if its chunk is damaged.
    """
    # Unlike its other calls, this one of h5py's does not take the lock by itself.
    with phil:
        skipped, packed = dataset.id.read_direct_chunk((index,) + (0,) * (dataset.ndim - 1))
        shape, kind, names = dataset.shape[1:], dataset.dtype, list(dataset._filters)
    size = kind.itemsize * int(np.prod(shape))
    # HDF5 stores a chunk without a filter that does not make it smaller, and sets a bit for it.
    filters = [name for number, name in enumerate(names) if not skipped >> number & 1]
    if _GZIP in filters:
        packed = _inflated(packed, size)
    if len(packed) != size:
        raise ValueError("its chunk is damaged")
    values = np.frombuffer(packed, np.uint8)
    if _SHUFFLE in filters:
        values = unshuffled(values.reshape(kind.itemsize, -1))
    found: NDArray[Any] = values.view(kind).reshape(shape)
    return found


def _inflated(packed: bytes, size: int) -> bytes:
    """Unpack a stream of zlib; give b"" if it is damaged, or is longer than this size."""
    unpack = isal_zlib.decompressobj()
    try:
        content = unpack.decompress(packed, size + 1)
    except isal_zlib.error:  # type: ignore[misc]  # its stub calls the class an exception
        return b""
    return content if unpack.eof else b""


def unshuffled(planes: NDArray[np.uint8]) -> NDArray[Any]:
    """Undo HDF5's filter `shuffle`: the first bytes of all values, then the second ones, ..."""
    size, count = planes.shape
    whole = np.dtype(f"<u{size}")
    found = np.empty(count, whole)
    for start in range(0, count, _AT_ONCE):
        part = found[start : start + _AT_ONCE]
        part[...] = planes[0, start : start + _AT_ONCE]
        for place in range(1, size):
            higher = planes[place, start : start + _AT_ONCE].astype(whole)
            higher <<= 8 * place
            part |= higher
    return found


CACHE_BYTES = 64 << 20
"""Bytes of HDF5's own cache of unpacked chunks, per dataset."""

WHOLE_BYTES = 1 << 20
"""Most bytes of a dataset that is read once and kept, such as labels."""


@dataclass(frozen=True, slots=True)
class FileNames:
    """The usual names of a format's files."""

    find: Callable[[Path], Mapping[Split, Sequence[str]]]
    new: Callable[[Split, int], list[tuple[str, int]]]


@dataclass(frozen=True, slots=True)
class HDF5Format:
    """A format (`Format`) whose files are HDF5."""

    name: str
    science: str
    fields: tuple[Field, ...]
    grid: tuple[str, ...]
    """Letters of the shapes that are the grid."""
    names: FileNames
    to_rows: Callable[[Mapping[str, Values]], Rows]
    to_fields: Callable[[Rows], Mapping[str, Values]]
    block: int = 1
    """Number of samples of a chunk in new files, and of a read."""

    def find(self, folder: Path) -> Mapping[Split, Sequence[str]]:
        """Find the files of each split, by their usual names, in order."""
        return self.names.find(folder)

    def new_files(self, split: Split, samples: int) -> list[tuple[str, int]]:
        """Names and numbers of samples of new files. Raises UsageError if they are too many."""
        return self.names.new(split, samples)

    def open(self, path: Path) -> HDF5File:
        """Open a file. Raises DatasetError that lists all problems of its layout."""
        return HDF5File(self, path)

    def write(self, path: Path, layout: FileLayout, blocks: Iterable[Rows]) -> None:
        """Write a new file, whole or not at all. Raises OSError."""
        # Next to the file, since a rename is atomic only within a file system.
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            with h5py.File(temporary, "w") as file:
                self._fill(file, layout, blocks)
            temporary.replace(path)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)

    def _fill(self, file: h5py.File, layout: FileLayout, blocks: Iterable[Rows]) -> None:
        sizes = {"N": layout.samples, **dict(zip(self.grid, layout.grid, strict=True))}
        for field in self.fields:
            shape = tuple(sizes[size] if isinstance(size, str) else size for size in field.shape)
            packed: dict[str, Any] = {}
            if len(shape) > 2:
                packed = {"chunks": (min(self.block, shape[0]), *shape[1:]), "compression": 1, "shuffle": True}
            file.create_dataset(field.path, shape, field.types[0], **packed)
        start = 0
        for rows in blocks:
            stop = start + len(rows[0])
            for path, values in self.to_fields(rows).items():
                file[path][start:stop] = values
            start = stop


class HDF5File:
    """A file of a format, open for reading."""

    def __init__(self, form: HDF5Format, path: Path) -> None:
        self._form, self._path = form, path
        try:
            # Without locks: read-only mounts and many NFS servers refuse them.
            self._file = h5py.File(path, "r", locking=False, rdcc_nbytes=CACHE_BYTES)
        except Exception as error:  # of any kind: h5py raises what it comes across
            raise DatasetError(f"{path}: cannot be opened as HDF5: {reason_of(error)}") from None
        self._datasets: dict[str, h5py.Dataset] = {}
        sizes: dict[str, int] = {}
        problems = list(self._layout_problems(sizes))
        if not problems and not sizes["N"]:
            problems = [f"{path.name}: holds no samples"]
        if problems:
            self.close()
            raise DatasetError(*problems)
        self._sizes: Sizes = sizes
        self._whole: dict[str, Values] = {}
        self._direct = {path for path, dataset in self._datasets.items() if unpacks(dataset)}
        self.layout = FileLayout(sizes["N"], tuple(sizes[letter] for letter in form.grid))

    def _layout_problems(self, sizes: dict[str, int]) -> Iterator[str]:
        for field in self._form.fields:
            try:
                found = dataset_of(self._file, field)
                problem = shape_problem(found, field, sizes)
            except Exception as error:  # of any kind: h5py raises what it comes across
                problem = reason_of(error)
                if not field.needed and problem == "is missing":
                    continue
            if problem is not None:
                yield f"{self._path.name}: {field.path} {problem}"
            elif field.needed:
                self._datasets[field.path] = found

    def read(self, start: int, stop: int) -> Rows:
        """Read the samples from `start` to `stop`.

        Raises ValueError naming dataset and samples if they cannot be unpacked.
        """
        values = {}
        for path, dataset in self._datasets.items():
            try:
                values[path] = self._values(path, dataset, start, stop)
            except Exception as error:  # of any kind: h5py raises what it comes across
                place = f"index {start}" if stop - start == 1 else f"indices {start} to {stop - 1}"
                raise ValueError(f"{path}, {place}: cannot be read: {reason_of(error)}") from None
        with np.errstate(over="ignore", invalid="ignore"):
            return self._form.to_rows(values)

    def _values(self, path: str, dataset: h5py.Dataset, start: int, stop: int) -> Values:
        if stop - start == 1 and path in self._direct:
            return sample_chunk(dataset, start)[None]
        if path not in self._whole and dataset.size * dataset.dtype.itemsize <= WHOLE_BYTES:
            with contextlib.suppress(Exception):  # of any kind: a part of it may be read
                self._whole[path] = dataset[...]
        found: Values = self._whole[path][start:stop] if path in self._whole else dataset[start:stop]
        return found

    def problems(self, start: int, rows: Rows) -> Iterator[str]:
        """Yield the problems of values that were read from `start` on, by dataset and index."""
        values = self._form.to_fields(rows)
        for field in self._form.fields:
            if field.path in self._datasets:
                for index, words in value_problems(field, values[field.path], self._sizes, start):
                    yield f"{field.path}, index {index}: {words}"

    def close(self) -> None:
        """Close the file."""
        with contextlib.suppress(Exception):  # of any kind, of a damaged file
            self._file.close()
