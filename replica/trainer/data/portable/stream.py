"""Encoded images as a stream: shuffled in a buffer, decoded in threads, in batches."""

import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import cv2
import numpy as np
import simplejpeg
from numpy.typing import NDArray

from aiperf.config.dataset_manifest import Split
from aiperf.config.datasets import Dataset
from aiperf.errors import TrialFailedError
from aiperf.host import this_host
from aiperf.untrusted.images import decode_image
from aiperf.wire.messages import TrainRequest
from replica.trainer.data.contract import Batches
from replica.trainer.data.portable.recipe import (
    CROP_AREA,
    CROP_ASPECT,
    CROP_ATTEMPTS,
    SHORT_SIDE,
)

# Images decoded by libjpeg-turbo (simplejpeg), cropped and resized by OpenCV.
#
# Crops and sizes are those of `replica.trainer.data.images`. Pixels stay bytes until the steps
# normalise them, and the decoders round differently: a few levels of 255 in single pixels, less
# than one on average.

Pixels = NDArray[np.uint8]
"""Pixels of an image, (S, S, 3)."""

Box = tuple[int, int, int, int]
"""Box: top, left, height, width."""


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
    """The crop of a validation image."""
    # In float32, as TensorFlow's pipeline computes it: both cut out the same pixels.
    crop = np.float32(min(height, width)) / np.float32(SHORT_SIDE)
    size = max(int(np.round(crop)), 1)
    return int((height - crop) / 2), int((width - crop) / 2), size, size


def random_box(height: int, width: int, rng: np.random.Generator) -> Box:
    """Draw a box of random area and aspect, anywhere in the image; all of it if ten do not fit."""
    for _ in range(CROP_ATTEMPTS):
        area = rng.uniform(*CROP_AREA) * height * width
        aspect = rng.uniform(*CROP_ASPECT)
        rows, columns = round(math.sqrt(area / aspect)), round(math.sqrt(area * aspect))
        if 0 < rows <= height and 0 < columns <= width:
            return int(rng.integers(height - rows + 1)), int(rng.integers(width - columns + 1)), rows, columns
    return 0, 0, height, width


def cropped(image: Pixels, box: Box, side: int) -> Pixels:
    """Cut out the box and resize it to (side, side, 3) by bilinear interpolation.

    Centres are at half-integers, edges are repeated, and nothing is smoothed before, as
    `tf.image.resize` does it; the result is rounded to bytes.
    """
    top, left, height, width = box
    part = image[top : top + height, left : left + width]
    resized: Pixels = cv2.resize(part, (side, side), interpolation=cv2.INTER_LINEAR)
    return resized


Examples = Iterable[tuple[bytes, int]]
"""Pairs of encoded image and label (from 0)."""

Transform = Callable[[bytes, int], Pixels]
"""Function that makes the pixels of an encoded image, with its number in the stream."""

PREFETCHED_BATCHES = 2

TOGETHER = 4
"""Number of images that a thread decodes before it asks for others."""


def shuffled(examples: Examples, buffer: int, rng: np.random.Generator) -> Iterator[tuple[bytes, int]]:
    """Yield each example once, drawn at random from a buffer that is kept full."""
    source = iter(examples)
    held = list(islice(source, buffer))
    for example in source:
        place = int(rng.integers(len(held)))
        yield held[place]
        held[place] = example
    for place in rng.permutation(len(held)):
        yield held[place]


def train_batches(examples: Examples, dataset: Dataset, request: TrainRequest, seed: tuple[int, ...]) -> Batches:
    """Shuffle, transform and batch."""
    mixed = shuffled(examples, request.shuffle_buffer, np.random.default_rng((*seed, 0)))

    def transform(encoded: bytes, number: int) -> Pixels:
        # Seeded by the image's number: which thread decodes it, and when, changes no crop.
        return train_image(encoded, dataset.image_size, np.random.default_rng((*seed, 1, number)))

    return batches_of(mixed, dataset, request, transform)


def validation_batches(examples: Examples, dataset: Dataset, request: TrainRequest) -> Batches:
    """Transform and batch, in order."""
    return batches_of(examples, dataset, request, lambda encoded, _: validation_image(encoded, dataset.image_size))


def batches_of(examples: Examples, dataset: Dataset, request: TrainRequest, transform: Transform) -> Batches:
    """Yield batches of transformed images in order, and decode those of the next ones meanwhile.

    Threads are enough: simplejpeg and OpenCV release Python's lock. The thread that decodes an
    image puts it into its place in the batch: what the thread that trains does for each image
    decides how fast an accelerator one process can feed.
    """
    one_hot = np.eye(dataset.classes, dtype=np.float32)
    side, source = dataset.image_size, iter(examples)
    waiting: deque[tuple[list[Future[None]], Pixels, list[int]]] = deque()
    pool = ThreadPoolExecutor(min(request.parallel_decode, this_host().usable_cpus()))
    one_thread_an_image()

    def finished() -> tuple[Pixels, NDArray[np.float32]]:
        futures, pixels, labels = waiting.popleft()
        for future in futures:
            future.result()
        return pixels, one_hot[labels]

    try:
        for first in itertools.count(step=request.batch_size):
            taken = list(islice(source, request.batch_size))
            if not taken:
                break
            pixels = np.empty((len(taken), side, side, 3), np.uint8)
            encoded = [image for image, _ in taken]
            futures = [
                pool.submit(_fill, pixels, encoded, range(start, min(start + TOGETHER, len(taken))), first, transform)
                for start in range(0, len(taken), TOGETHER)
            ]
            waiting.append((futures, pixels, [label for _, label in taken]))
            if len(waiting) > PREFETCHED_BATCHES:
                yield finished()
        while waiting:
            yield finished()
    finally:
        # A reader may stop in the middle of an epoch: nothing waits for images that nobody takes.
        pool.shutdown(wait=False, cancel_futures=True)


def _fill(pixels: Pixels, encoded: Sequence[bytes], places: range, first: int, transform: Transform) -> None:
    """Transform the images of these places in a batch, whose first has the number `first`."""
    for place in places:
        pixels[place] = transform(encoded[place], first + place)


def checked(batches: Batches, folder: Path, split: Split) -> Batches:
    """Pass batches on. Raises TrialFailedError ("data") with the split's name."""
    try:
        yield from batches
    except (OSError, ValueError) as error:
        reason = f"{folder}, {split}: {str(error)[:300]}; find it with: aiperf dataset check {folder}"
        raise TrialFailedError("data", reason) from None
