"""Chunks of HDF5 unpacked outside of HDF5's lock, so that several threads do it side by side.

h5py lets one thread of a process into the library at a time, unpacking included. The packed bytes
of a chunk are quickly read; zlib and NumPy, which unpack them here, release Python's lock.
"""

from __future__ import annotations

import zlib
from typing import Any

import h5py
import numpy as np
from h5py._objects import phil
from numpy.typing import NDArray

_GZIP, _SHUFFLE = "gzip", "shuffle"


def unpacks(dataset: h5py.Dataset) -> bool:
    """True if each sample of a dataset is one chunk that `sample_chunk` can unpack."""
    chunks, filters = dataset.chunks, list(dataset._filters)
    return bool(
        dataset.ndim > 1
        and chunks == (1, *dataset.shape[1:])
        and filters in ([], [_GZIP], [_SHUFFLE, _GZIP])
        and dataset.dtype.byteorder in ("<", "=", "|")
    )


def sample_chunk(dataset: h5py.Dataset, index: int) -> NDArray[Any]:
    """One sample of a dataset of which `unpacks` is true, without the first axis.

    Raises ValueError if its chunk is damaged.
    """
    # h5py does not take its own lock for this call, and HDF5 bears only one thread at a time.
    with phil:
        skipped, packed = dataset.id.read_direct_chunk((index,) + (0,) * (dataset.ndim - 1))
    shape, kind = dataset.shape[1:], dataset.dtype
    size = kind.itemsize * int(np.prod(shape))
    filters = [name for number, name in enumerate(dataset._filters) if not skipped >> number & 1]
    if _GZIP in filters:
        try:
            packed = zlib.decompressobj().decompress(packed, size + 1)
        except zlib.error:
            raise ValueError("its chunk is damaged") from None
    if len(packed) != size:
        raise ValueError(f"its chunk has {len(packed)} bytes, not {size}")
    values = np.frombuffer(packed, np.uint8)
    if _SHUFFLE in filters:
        # The first bytes of all values come first, then the second ones.
        values = np.ascontiguousarray(values.reshape(kind.itemsize, -1).T)
    found: NDArray[Any] = values.view(kind).reshape(shape)
    return found
