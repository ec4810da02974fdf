"""Crops of the benchmark from encoded images, without a framework.

libjpeg-turbo (simplejpeg) decodes, OpenCV crops and resizes. Crops and sizes are those of
`replica.trainer.data.images`. Pixels stay bytes until the steps normalise them, and the decoders
round differently: a few levels of 255 in single pixels, less than one on average.
"""

import math
from typing import NamedTuple

import cv2
import msgspec
import numpy as np
import simplejpeg
from numpy.typing import NDArray

from aiperf.untrusted.images import decode_image
from replica.trainer.data.portable.recipe import (
    CROP_AREA,
    CROP_ASPECT,
    CROP_ATTEMPTS,
    SHORT_SIDE,
)

Pixels = NDArray[np.uint8]
"""Pixels of an image, (S, S, 3), or of a batch of them, (N, S, S, 3)."""

Box = tuple[int, int, int, int]
"""Box: top, left, height, width."""


class Crop(NamedTuple):
    """The part of an image that is resized, flipped half of the time in training."""

    box: Box
    is_mirrored: bool


class Crops(msgspec.Struct, frozen=True, array_like=True):
    """The crops that are wanted of some encoded images, which follow each other in a stream."""

    side: int
    seed: tuple[int, ...] | None
    """Seed of random crops; None: the central ones of a validation."""
    first: int
    """Number of the first image in the stream."""
    images: list[bytes]

    def crop(self, place: int, height: int, width: int) -> Crop:
        """The crop of the image in this place, which has this size, for every decoder."""
        if self.seed is None:
            return Crop(central_box(height, width), is_mirrored=False)
        # Seeded by the image's number: who decodes it, and when, changes no crop.
        rng = np.random.default_rng((*self.seed, 1, self.first + place))
        return Crop(random_box(height, width, rng), is_mirrored=rng.random() < 0.5)

    def only(self, place: int) -> "Crops":
        """The crop of one of the images."""
        return Crops(self.side, self.seed, self.first + place, self.images[place : place + 1])

    def fill(self, pixels: Pixels) -> None:
        """Write the crops (N, side, side, 3). Raises ValueError if an image is not a JPEG."""
        for place, encoded in enumerate(self.images):
            image = decoded(encoded)
            height, width, _ = image.shape
            box, is_mirrored = self.crop(place, height, width)
            resized = cropped(image, box, self.side)
            # NumPy would copy a mirrored view pixel by pixel, which takes longer than the crop.
            pixels[place] = cv2.flip(resized, 1) if is_mirrored else resized


def one_thread_an_image() -> None:
    """Keep OpenCV from threads of its own: images are decoded in parallel already."""
    cv2.setNumThreads(1)


def decoded(encoded: bytes) -> NDArray[np.uint8]:
    """Decode a JPEG to RGB (H, W, 3). Raises ValueError."""
    try:
        image: NDArray[np.uint8] = simplejpeg.decode_jpeg(encoded, "RGB", fastdct=True)
    except ValueError:
        # simplejpeg takes warnings of libjpeg for errors; TensorFlow and `aiperf dataset check` do
        # not.
        image = np.asarray(decode_image(encoded, "JPEG").convert("RGB"))
    return image


def central_box(height: int, width: int) -> Box:
    """The central square of 224/256 of the short side, for validation."""
    # In float32, as TensorFlow's pipeline computes it: both cut out the same pixels.
    crop = np.float32(min(height, width)) / np.float32(SHORT_SIDE)
    size = max(int(np.round(crop)), 1)
    return int((height - crop) / 2), int((width - crop) / 2), size, size


def random_box(height: int, width: int, rng: np.random.Generator) -> Box:
    """Draw a box of random area and aspect, anywhere in the image; all of it if ten do not fit.

    It has 0.08 to 1 of the area and an aspect of 3/4 to 4/3 (Szegedy et al. 2015, section 6).
    """
    for _ in range(CROP_ATTEMPTS):
        area = rng.uniform(*CROP_AREA) * height * width
        aspect = rng.uniform(*CROP_ASPECT)
        rows, columns = round(math.sqrt(area / aspect)), round(math.sqrt(area * aspect))
        if 0 < rows <= height and 0 < columns <= width:
            return int(rng.integers(height - rows + 1)), int(rng.integers(width - columns + 1)), rows, columns
    return 0, 0, height, width


def cropped(image: NDArray[np.uint8], box: Box, side: int) -> Pixels:
    """Cut out the box and resize it to (side, side, 3) by bilinear interpolation.

    Centres are at half-integers, edges are repeated, and nothing is smoothed before, as
    `tf.image.resize` does it; the result is rounded to bytes.
    """
    top, left, height, width = box
    part = image[top : top + height, left : left + width]
    resized: Pixels = cv2.resize(part, (side, side), interpolation=cv2.INTER_LINEAR)
    return resized
