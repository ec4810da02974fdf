"""The transforms from samples in files to inputs and targets of a training, in NumPy alone."""

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
"""Factor of the electromagnetic fraction inside of the logarithm."""

MIDDLE_COUNT = 4.0
"""Count, in means, that becomes 0: x becomes 2 x / (x + 4) - 1 (cosmoGAN, Mustafa et al. 2019)."""

Scales = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Shift that is subtracted from each channel, then its factor, (C, 1, 1) each."""

_TABLE = 1 << 15
"""Number of counts that 16 signed bits hold: a table of their logarithms is faster than log1p."""

_PIXELS = 1 << 14
"""Number of pixels that are converted at a time, so that they stay in a core's cache."""

_EASTWARD = [WEATHER_CHANNELS.index(name) for name in EASTWARD]
_SIGNS = np.where(np.isin(np.arange(len(WEATHER_CHANNELS)), _EASTWARD), -1.0, 1.0)


def collisions(rows: Rows, into: Batch) -> None:
    """Make inputs (S, S, 3): half of log(1 + E / GeV), log(1 + 5 f) and log(1 + n).

    Targets (3,): one-hot of background and signal, then 1 if the selection takes the collision.
    """
    inputs, (signal, selected) = rows
    # Computed in the batch's own memory: no array is made for each example.
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
        """Convert a cube (n, n, n, 4), reversed along each axis with a flip. Raises ValueError."""
        if cube.min() < 0:
            raise ValueError("a cube has negative counts")
        turned = cube[tuple(slice(None, None, -1 if flip else 1) for flip in flips)]
        planes = max(1, _PIXELS // len(cube) ** 2)
        for start in range(0, len(cube), planes):
            part = turned[start : start + planes]
            for channel, table in enumerate(self._tables):
                into[start : start + planes, ..., channel] = table[part[..., channel]]


class Weather:
    """The inputs of global weather: standardised by channel, channels last."""

    def __init__(self, channels: Sequence[Channel]) -> None:
        means = np.array([channel.mean for channel in channels])
        # A channel of one value has no deviation, and becomes 0 with any.
        deviations = np.array([channel.std or 1.0 for channel in channels])
        self._scales = {mirror: _scales(means, deviations, mirror) for mirror in (False, True)}

    def image(self, image: NDArray[np.float32], mirror: bool, into: NDArray[np.float32]) -> None:
        """Convert an image (16, H, W) to (H, W, 16).

        In a mirror, east and west change places, and eastward winds their sign.
        """
        _scaled(image, mirror, self._scales[mirror], into)


def standardised(image: NDArray[np.float32], mirror: bool, into: NDArray[np.float32]) -> None:
    """Convert an image (16, H, W) to (H, W, 16), each channel with mean 0 and deviation 1.

    This is Caffe's layer MVN; a channel of one value becomes 0. A mirror is that of
    `Weather.image`.
    """
    means, deviations = image.mean(axis=(1, 2), dtype=np.float64), image.std(axis=(1, 2), dtype=np.float64)
    # In a mirror, the means of eastward winds change their sign, too.
    means = means * _SIGNS if mirror else means
    _scaled(image, mirror, _scales(means, np.where(deviations > 0, deviations, 1.0), mirror), into)


def _scales(means: NDArray[np.float64], deviations: NDArray[np.float64], mirror: bool) -> Scales:
    signs = _SIGNS if mirror else np.ones_like(_SIGNS)
    shift, scale = (means * signs).astype(np.float32), (signs / deviations).astype(np.float32)
    return shift[:, None, None], scale[:, None, None]


def _scaled(image: NDArray[np.float32], mirror: bool, scales: Scales, into: NDArray[np.float32]) -> None:
    shift, scale = scales
    turned = image[..., ::-1] if mirror else image
    rows = max(1, _PIXELS // image.shape[2])
    for top in range(0, image.shape[1], rows):
        part = turned[:, top : top + rows] - shift
        part *= scale
        into[top : top + rows] = part.transpose(1, 2, 0)


def mirrored(boxes: NDArray[np.int32], columns: int) -> NDArray[np.int32]:
    """The boxes (15, 5) of an image of this many columns in which east and west change places."""
    found, used = boxes.copy(), boxes[:, 4] >= 0
    found[used, 1], found[used, 3] = columns - boxes[used, 3], columns - boxes[used, 1]
    return found


def cropped(boxes: NDArray[np.int32], left: int, columns: int) -> NDArray[np.int32]:
    """The parts of boxes (15, 5) in a crop of this many columns from `left` on, in its own columns.

    A box whose centre is outside is left out; rows without a box are -1.
    """
    found = np.full_like(boxes, -1)
    centres = 0.5 * (boxes[:, 1] + boxes[:, 3]) - left
    kept = boxes[(boxes[:, 4] >= 0) & (centres >= 0) & (centres < columns)]
    kept[:, [1, 3]] = np.clip(kept[:, [1, 3]] - left, 0, columns)
    found[: len(kept)] = kept
    return found


def field(counts: NDArray[np.int16], mean: float) -> NDArray[np.float32]:
    """Make a field (..., 1) in -1 to 1 of counts (...): 2 x / (x + 4) - 1, with x in means."""
    scaled = counts.astype(np.float32) / np.float32(mean)
    return (2 * scaled / (scaled + np.float32(MIDDLE_COUNT)) - 1)[..., None]
