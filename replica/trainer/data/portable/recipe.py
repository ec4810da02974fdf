"""Numbers of crops and normalisation, which all input pipelines share (spec, section 3)."""

import numpy as np
from numpy.typing import NDArray

MEAN = (123.675, 116.28, 103.53)
DEVIATION = (58.395, 57.12, 57.375)
"""Mean and standard deviation of ImageNet's training images by channel, of 255.

As fractions of 1: 0.485, 0.456, 0.406 and 0.229, 0.224, 0.225.
"""


def scale_and_shift(width: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Factors and offsets (3 x width) that normalise a row of pixels: pixel x factor - offset.

    The result has mean 0 and standard deviation 1 by channel. Rows, because operations that repeat
    three numbers along the innermost axis are not vectorised.
    """
    deviation = np.array(DEVIATION, np.float32)
    return np.tile(1 / deviation, width), np.tile(np.array(MEAN, np.float32) / deviation, width)


CROP_AREA = (0.08, 1.0)
CROP_ASPECT = (3 / 4, 4 / 3)
SHORT_SIDE = 256 / 224
"""Short side of a validation image before the central crop, in sides of the crop."""

CROP_ATTEMPTS = 10

OPEN_SHARDS = 16
"""Number of shards that a rank reads at the same time."""

BLOCK = 8
"""Number of images that are taken from a shard before the next one has its turn."""
