"""Images decoded by libjpeg-turbo (simplejpeg), cropped and resized by OpenCV.

Crops, sizes and normalisation are those of `replica.trainer.data.images`. Pixels stay bytes until
the batch is normalised, and the decoders round differently: a few levels of 255 in single pixels,
less than one on average.
"""

from __future__ import annotations

import math

import cv2
import numpy as np
import simplejpeg
from numpy.typing import NDArray

from aiperf.untrusted.images import decode_image
from replica.trainer.data.portable.recipe import (
    CROP_AREA,
    CROP_ASPECT,
    CROP_ATTEMPTS,
    DEVIATION,
    MEAN,
    SHORT_SIDE,
)

Pixels = NDArray[np.uint8]
"""(S, S, 3)."""

Box = tuple[int, int, int, int]
"""Top, left, height, width."""


def train_image(encoded: bytes, side: int, rng: np.random.Generator) -> Pixels:
    """Take a random crop, resized to `side`, flipped half of the time.

    The crop has 0.08 to 1 of the area and an aspect of 3/4 to 4/3 (Szegedy et al. 2015, section 6).
    Raises ValueError if it is not a JPEG.
    """
    image = decoded(encoded)
    height, width, _ = image.shape
    resized = cropped(image, random_box(height, width, rng), side)
    return resized[:, ::-1] if rng.random() < 0.5 else resized


def validation_image(encoded: bytes, side: int) -> Pixels:
    """Take the central square of 224/256 of the short side, resized. Raises ValueError."""
    image = decoded(encoded)
    height, width, _ = image.shape
    return cropped(image, central_box(height, width), side)


def one_thread_an_image() -> None:
    """Keep OpenCV from threads of its own: images are decoded side by side already."""
    cv2.setNumThreads(1)


def decoded(encoded: bytes) -> NDArray[np.uint8]:
    """RGB (H, W, 3) of a JPEG. Raises ValueError."""
    try:
        image: NDArray[np.uint8] = simplejpeg.decode_jpeg(encoded, "RGB", fastdct=True)
    except ValueError:
        # A warning of libjpeg is an error to it, and none to TensorFlow and `aiperf dataset check`.
        image = np.asarray(decode_image(encoded, "JPEG").convert("RGB"))
    return image


def central_box(height: int, width: int) -> Box:
    """The crop of a validation image."""
    crop = np.float32(min(height, width)) / np.float32(SHORT_SIDE)
    size = max(int(np.round(crop)), 1)
    return int((height - crop) / 2), int((width - crop) / 2), size, size


def random_box(height: int, width: int, rng: np.random.Generator) -> Box:
    """A box of a random area and aspect, anywhere in the image; all of it if ten do not fit."""
    for _ in range(CROP_ATTEMPTS):
        area = rng.uniform(*CROP_AREA) * height * width
        aspect = rng.uniform(*CROP_ASPECT)
        rows, columns = round(math.sqrt(area / aspect)), round(math.sqrt(area * aspect))
        if 0 < rows <= height and 0 < columns <= width:
            return int(rng.integers(height - rows + 1)), int(rng.integers(width - columns + 1)), rows, columns
    return 0, 0, height, width


def cropped(image: Pixels, box: Box, side: int) -> Pixels:
    """The box resized to (side, side, 3) by bilinear interpolation.

    Centres are at half-integers, edges are repeated, and nothing is smoothed before, as
    `tf.image.resize` does it; the result is rounded to bytes.
    """
    top, left, height, width = box
    part = image[top : top + height, left : left + width]
    resized: Pixels = cv2.resize(part, (side, side), interpolation=cv2.INTER_LINEAR)
    return resized


def normalised(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Scale (N, S, S, 3) to mean 0 and standard deviation 1 by channel, as float32.

    Done by rows: operations that repeat three numbers along the innermost axis are not vectorised.
    """
    count, height, width, _ = images.shape
    scale = np.tile(1 / np.array(DEVIATION, np.float32), width)
    shift = np.tile(np.array(MEAN, np.float32) / np.array(DEVIATION, np.float32), width)
    rows = np.multiply(images.reshape(count, height, 3 * width), scale, dtype=np.float32)
    rows -= shift
    return rows.reshape(images.shape)
