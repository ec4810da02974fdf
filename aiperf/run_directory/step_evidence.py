"""Evidence of a training: losses and gradient norms of its steps, and hashes of its weights.

A file for each trial holds the rows of its epochs one after the other. A row is four little-endian
float32: epoch, step (from 1), mean loss over the images of the step of all ranks, and Euclidean
norm of the gradient that was applied, after the all-reduce. The record of an epoch has the SHA-256
of its rows.
"""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiperf.errors import RunDirectoryError
from aiperf.files import append
from aiperf.untrusted.reading import read_bounded

ROW = np.dtype([("epoch", "<f4"), ("step", "<f4"), ("loss", "<f4"), ("gradient_norm", "<f4")])


MOST_BYTES, MOST_EPOCHS = 1 << 29, 1 << 20
"""Upper limits for the rows of a trial, in bytes, and for its epochs: more than a training has."""


def rows_of(epoch: int, losses: NDArray[Any], norms: NDArray[Any]) -> NDArray[Any]:
    """The rows of an epoch from the loss and the gradient norm of each step, (steps,) both."""
    rows = np.empty(len(losses), ROW)
    rows["epoch"], rows["step"] = epoch, np.arange(1, len(losses) + 1)
    rows["loss"], rows["gradient_norm"] = losses, norms
    return rows


def hash_rows(rows: NDArray[Any]) -> str:
    """SHA-256 of rows, as 64 hex digits."""
    return hashlib.sha256(rows.tobytes()).hexdigest()


def hash_weights(weights: Iterable[NDArray[Any]]) -> str:
    """SHA-256 of a model's weights in Keras's order: of each shape, type, little-endian values."""
    digest = hashlib.sha256()
    for array in weights:
        # The hash is of little-endian values in row order, whatever the memory layout of the
        # framework.
        values = np.ascontiguousarray(array)
        values = values.astype(values.dtype.newbyteorder("<"), copy=False)
        digest.update(f"{values.shape} {values.dtype.name}\n".encode())
        digest.update(values.data)
    return digest.hexdigest()


def hash_state(arrays: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 of the state of a training: of each array's name, shape and bytes, by name."""
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        # The types that NumPy does not know, such as bfloat16, are bytes to it once they are read.
        digest.update(f"{name} {array.shape} {array.itemsize}\n".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def append_rows(file: Path, rows: NDArray[Any]) -> None:
    """Add the rows of an epoch. Raises OSError."""
    append(file, rows.tobytes())


def read_rows(file: Path) -> dict[int, NDArray[Any]]:
    """The rows of a trial by epoch. Raises RunDirectoryError if the file is not evidence."""
    data = read_bounded(file, MOST_BYTES)
    if len(data) % ROW.itemsize:
        raise RunDirectoryError(f"{file}: is not evidence: {len(data)} bytes are not whole rows of {ROW.itemsize}")
    rows = np.frombuffer(data, ROW)
    epochs = rows["epoch"]
    if not np.all((epochs >= 0) & (epochs <= MOST_EPOCHS)) or np.any(epochs % 1):
        raise RunDirectoryError(f"{file}: is not evidence: a row has no epoch")
    # Stable: the steps of an epoch stay in the order in which they were written.
    ordered = rows[np.argsort(epochs, kind="stable")]
    numbers, starts = np.unique(ordered["epoch"], return_index=True)
    parts = np.split(ordered, starts[1:])
    return {int(number): part for number, part in zip(numbers, parts, strict=False)}
