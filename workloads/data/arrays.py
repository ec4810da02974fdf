"""Samples in memory as their files have them, and the moments of their channels."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = tuple[NDArray[Any], NDArray[Any]]
"""Inputs and targets of samples along the first axis, or of one sample without that axis.

hep: (N, S, S, 3) float32, GeV, fraction and tracks; (N, 2) float32, signal and selected.
ewa: (N, 16, H, W) float32; (N, 15, 5) int32, ymin, xmin, ymax, xmax, class.
cos: (N, n, n, n, 4) int16 counts; (N, 4) float32 parameters from -1 to 1.
"""

ENTRY_BYTES = 32


def stacked(samples: Sequence[Rows]) -> Rows:
    """Stack samples along a new first axis."""
    inputs, targets = zip(*samples, strict=True)
    return np.stack(inputs), np.stack(targets)


def entries_of(rows: Rows) -> bytes:
    """The SHA-256 of each sample's values, 32 bytes each: inputs and targets, little-endian."""
    # One order of bytes: a fingerprint must be the same on any processor.
    inputs, targets = (np.ascontiguousarray(part, part.dtype.newbyteorder("<")) for part in rows)
    return b"".join(
        hashlib.sha256(one.tobytes() + other.tobytes()).digest() for one, other in zip(inputs, targets, strict=True)
    )


@dataclass(frozen=True, slots=True)
class Moments:
    """The number of values, mean and sum of squared deviations of each channel."""

    count: int
    mean: NDArray[np.float64]
    squares: NDArray[np.float64]

    @classmethod
    def of(cls, values: NDArray[Any], channel_axis: int) -> Moments:
        """Compute the moments of an array with channels along one axis."""
        others = tuple(axis for axis in range(values.ndim) if axis != channel_axis % values.ndim)
        # Squares of float32 values, added up by the million, would lose the small ones.
        exact = values.astype(np.float64)
        mean = exact.mean(axis=others, keepdims=True)
        count = exact.size // exact.shape[channel_axis]
        return cls(count, mean.ravel(), np.square(exact - mean).sum(axis=others).ravel())

    def joined(self, other: Moments) -> Moments:
        """Join the moments of two parts (Chan, Golub and LeVeque 1983)."""
        count = self.count + other.count
        distance = other.mean - self.mean
        mean = self.mean + distance * (other.count / count)
        squares = self.squares + other.squares + distance**2 * (self.count * other.count / count)
        return Moments(count, mean, squares)

    @property
    def deviation(self) -> NDArray[np.float64]:
        """The standard deviation of each channel."""
        found: NDArray[np.float64] = np.sqrt(self.squares / self.count)
        return found


@dataclass(frozen=True, slots=True)
class Spreads:
    """The mean, deviation, least and largest value of each sample's channels, (N, C) each."""

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]
    least: NDArray[np.float64]
    largest: NDArray[np.float64]

    @classmethod
    def of(cls, values: NDArray[Any], channel_axis: int) -> Spreads:
        """Compute the spreads of samples along the first axis."""
        others = tuple(axis for axis in range(1, values.ndim) if axis != channel_axis % values.ndim)
        found = (
            values.mean(others, np.float64),
            values.std(others, np.float64),
            values.min(others),
            values.max(others),
        )
        return cls(*(part.astype(np.float64) for part in found))

    @classmethod
    def together(cls, parts: Sequence[Spreads]) -> Spreads:
        """Join the spreads of several parts, in order."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in cls.__slots__))

    def farthest(self) -> NDArray[np.float64]:
        """The distance of each sample's farthest value from the others, in deviations, (N, C).

        The reference is the half of the samples with the smaller ranges: a value that is far off
        would make its own deviation large. A channel that is constant there has 0.
        """
        ranges = self.largest - self.least
        half = np.argsort(ranges, axis=0, kind="stable")[: max(1, len(ranges) // 2)]
        mean = np.take_along_axis(self.mean, half, 0).mean(axis=0)
        square = np.take_along_axis(self.deviation, half, 0) ** 2
        deviation = np.sqrt(square.mean(axis=0) + np.take_along_axis(self.mean, half, 0).var(axis=0))
        distance = np.maximum(abs(self.largest - mean), abs(self.least - mean))
        found: NDArray[np.float64] = np.divide(
            distance, deviation, out=np.zeros_like(distance), where=np.broadcast_to(deviation > 0, distance.shape)
        )
        return found
