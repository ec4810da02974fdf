"""Samples as their files have them, made into inputs and targets of a training: NumPy alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from workloads.data.arrays import Rows
from workloads.data.generators.weather import CHANNELS as WEATHER_CHANNELS
from workloads.data.generators.weather import EASTWARD
from workloads.data.manifest import Channel

Batch = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Inputs and targets."""

FRACTION_SCALE = 5.0
"""Of the electromagnetic fraction, below the logarithm."""

MIDDLE_COUNT = 4.0
"""Counts x, in means, become 2 x / (x + 4) - 1: cosmoGAN's scale (Mustafa et al. 2019)."""

_TABLE = 1 << 15
"""Counts that 16 bits hold."""

_PIXELS = 1 << 14
"""That are converted at a time, so that they stay in a core's cache."""

_EASTWARD = [WEATHER_CHANNELS.index(name) for name in EASTWARD]
_SIGNS = np.where(np.isin(np.arange(len(WEATHER_CHANNELS)), _EASTWARD), -1.0, 1.0)


def collisions(rows: Rows, into: Batch) -> None:
    """Inputs (S, S, 3): half of log(1 + E / GeV), log(1 + 5 f) and log(1 + n).

    Targets (3,): one-hot of background and signal, then 1 if the selection takes the collision.
    """
    inputs, (signal, selected) = rows
    scaled = into[0]
    np.multiply(inputs, np.array([1.0, FRACTION_SCALE, 1.0], np.float32), out=scaled)
    np.log1p(scaled, out=scaled)
    scaled *= np.float32(0.5)
    into[1][:] = 1 - signal, signal, selected


class Cubes:
    """The inputs of cubes of counts: log(1 + x), standardised by channel."""

    def __init__(self, channels: Sequence[Channel]) -> None:
        logarithms = np.log1p(np.arange(_TABLE))
        self._tables = [
            ((logarithms - (channel.log_mean or 0.0)) / (channel.log_std or 1.0)).astype(np.float32)
            for channel in channels
        ]

    def __call__(self, cube: NDArray[np.int16], flips: Sequence[bool], into: NDArray[np.float32]) -> None:
        """A cube (n, n, n, 4), turned round along each axis with a flip. Raises ValueError."""
        if cube.min() < 0:
            raise ValueError("a cube has negative counts")
        turned = cube[tuple(slice(None, None, -1 if flip else 1) for flip in flips)]
        planes = max(1, _PIXELS // len(cube) ** 2)
        for start in range(0, len(cube), planes):
            part = turned[start : start + planes]
            for channel, table in enumerate(self._tables):
                into[start : start + planes, ..., channel] = table[part[..., channel]]


class Weather:
    """The inputs and targets of global weather: standardised by channel, channels last."""

    def __init__(self, channels: Sequence[Channel]) -> None:
        means = np.array([channel.mean for channel in channels])[:, None, None]
        deviations = np.array([channel.std or 1.0 for channel in channels])[:, None, None]
        self._scales = {
            mirror: ((means * signs).astype(np.float32), (signs / deviations).astype(np.float32))
            for mirror, signs in ((False, np.ones_like(means)), (True, _SIGNS[:, None, None]))
        }

    def image(self, image: NDArray[np.float32], mirror: bool, into: NDArray[np.float32]) -> None:
        """An image (16, H, W) as (H, W, 16).

        In a mirror, east and west change places, and eastward winds their sign.
        """
        shift, scale = self._scales[mirror]
        turned = image[..., ::-1] if mirror else image
        rows = max(1, _PIXELS // image.shape[2])
        for top in range(0, image.shape[1], rows):
            part = turned[:, top : top + rows] - shift
            part *= scale
            into[top : top + rows] = part.transpose(1, 2, 0)

    @staticmethod
    def boxes(boxes: NDArray[np.int32], columns: int, mirror: bool) -> NDArray[np.float32]:
        """Boxes (15, 5) of an image of this many columns; unused rows stay -1."""
        found = boxes.astype(np.float32)
        if mirror:
            used = boxes[:, 4] >= 0
            found[used, 1], found[used, 3] = columns - boxes[used, 3], columns - boxes[used, 1]
        return found


def field(counts: NDArray[np.int16], mean: float) -> NDArray[np.float32]:
    """A field (..., 1) in -1 to 1 of counts (...): 2 x / (x + 4) - 1, with x in means."""
    scaled = counts.astype(np.float32) / np.float32(mean)
    return (2 * scaled / (scaled + np.float32(MIDDLE_COUNT)) - 1)[..., None]
