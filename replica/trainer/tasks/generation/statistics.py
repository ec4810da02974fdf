"""What is known of a field without its phases: its power by wave number, and its pixels.

Both are given as numbers of each example whose sums tell those of all examples exactly.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from keras import ops
from numpy.typing import NDArray


@lru_cache(maxsize=8)
def shells(size: int, axes: int) -> NDArray[np.float32]:
    """Weights of the modes of a field in the mean of each wave number: (size^axes, size / 2 - 1).

    A mode belongs to the whole number nearest to the length of its wave vector, in waves per side.
    """
    along = np.fft.fftfreq(size, 1 / size)
    grid = np.stack(np.meshgrid(*[along] * axes, indexing="ij"))
    nearest = np.floor(np.sqrt(np.sum(grid**2, axis=0)) + 0.5).reshape(-1)
    member = nearest[:, None] == np.arange(1, size // 2)[None, :]
    weights: NDArray[np.float32] = (member / member.sum(axis=0)).astype(np.float32)
    return weights


def power(fields: Any, size: int, axes: int) -> Any:
    """Mean power of each wave number from 1 to size / 2 - 1: fields (N, size...) to (N, waves).

    The power of a mode is the squared modulus of its Fourier coefficient, divided by the number of
    cells.
    """
    real, imaginary = fields, ops.zeros_like(fields)
    for axis in range(1, axes + 1):
        turned = [ops.moveaxis(part, axis, -1) for part in (real, imaginary)]
        real, imaginary = (ops.moveaxis(part, -1, axis) for part in ops.fft(tuple(turned)))
    cells = size**axes
    modes = ops.reshape(ops.square(real) + ops.square(imaginary), (-1, cells)) / cells
    return ops.matmul(modes, ops.convert_to_tensor(shells(size, axes)))


def histogram(fields: Any, cells: int, bins: int) -> Any:
    """Cells by value, in `bins` equal bins over [-1, 1]: fields (N, ...) of `cells` to (N, bins).

    Values beyond the ends are in the outermost bins.
    """
    flat = ops.reshape(fields, (-1, cells))
    numbers = ops.cast(ops.clip(ops.floor((flat + 1.0) * (bins / 2)), 0, bins - 1), "int32")
    examples = ops.shape(flat)[0]
    numbers = numbers + ops.arange(examples, dtype="int32")[:, None] * bins
    ones = ops.ones_like(flat)
    counts = ops.segment_sum(ops.reshape(ones, (-1,)), ops.reshape(numbers, (-1,)), examples * bins)
    return ops.reshape(counts, (-1, bins))


def spectrum_error(made: NDArray[np.float64], real: NDArray[np.float64]) -> float:
    """Mean over wave numbers of abs(log10) of the ratio of powers, summed over examples: (waves,).

    Infinite if either has no power at a wave number.
    """
    if min(made.min(), real.min()) <= 0:
        return float("inf")
    return float(np.mean(np.abs(np.log10(made / real))))


def largest_distance(made: NDArray[np.float64], real: NDArray[np.float64]) -> float:
    """Kolmogorov's and Smirnov's: the largest difference of two distributions, given as counts."""
    return float(np.max(np.abs(np.cumsum(made) / made.sum() - np.cumsum(real) / real.sum())))
