"""Chunks of HDF5 unpacked outside of HDF5's lock, so that several threads do it side by side.

h5py lets one thread of a process into the library at a time, unpacking included. The packed bytes
of a chunk are quickly read; ISA-L (a zlib in half of the time) and NumPy, which unpack them here,
release Python's lock.
"""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np
from h5py._objects import phil
from isal import isal_zlib
from numpy.typing import NDArray

_GZIP, _SHUFFLE = "gzip", "shuffle"

_AT_ONCE = 1 << 15
"""Values that are put together at a time, so that they stay in a core's cache."""


def unpacks(dataset: h5py.Dataset) -> bool:
    """True if each sample of a dataset is one chunk that `sample_chunk` can unpack."""
    chunks, filters = dataset.chunks, list(dataset._filters)
    return bool(
        dataset.ndim > 1
        and dataset.dtype.itemsize in (1, 2, 4, 8)
        and chunks == (1, *dataset.shape[1:])
        and filters in ([], [_GZIP], [_SHUFFLE, _GZIP])
        and dataset.dtype.byteorder in ("<", "=", "|")
    )


def sample_chunk(dataset: h5py.Dataset, index: int) -> NDArray[Any]:
    """One sample of a dataset of which `unpacks` is true, without the first axis.

    Raises ValueError if its chunk is damaged.
    """
    # Unlike its other calls, this one of h5py's does not take the lock by itself.
    with phil:
        skipped, packed = dataset.id.read_direct_chunk((index,) + (0,) * (dataset.ndim - 1))
        shape, kind, names = dataset.shape[1:], dataset.dtype, list(dataset._filters)
    size = kind.itemsize * int(np.prod(shape))
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
    """The content of a stream of zlib; nothing if it is not of this size."""
    unpack = isal_zlib.decompressobj()
    try:
        content = unpack.decompress(packed, size + 1)
    except isal_zlib.error:  # type: ignore[misc]  # its stub calls the class an exception
        return b""
    return content if unpack.eof else b""


def unshuffled(planes: NDArray[np.uint8]) -> NDArray[Any]:
    """Values of HDF5's filter `shuffle`: first bytes of all come first, then the second ones."""
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
