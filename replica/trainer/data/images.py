"""Batches from encoded images: decoding, the crops of the benchmark, normalisation.

Spec, section 3.
"""

import contextlib
import errno
import os
from functools import partial
from pathlib import Path
from typing import Any

import tensorflow as tf

from aiperf.config.dataset_manifest import Split
from aiperf.config.datasets import Dataset
from aiperf.errors import TrialFailedError
from aiperf.storage.patience import FINAL, with_patience
from aiperf.wire.messages import TrainRequest
from replica.trainer.data.contract import Batches
from replica.trainer.data.portable.recipe import CROP_AREA, CROP_ASPECT, CROP_ATTEMPTS, SHORT_SIDE, scale_and_shift

PREFETCHED_BATCHES = 2

REFUSED = tuple(f"; {os.strerror(code)}" for code in errno.errorcode if code not in {*FINAL, errno.ENOMEM})
"""Words of TensorFlow's messages, after a file's name, for errors of storage that may pass."""

OF_DATA = (tf.errors.DataLossError, tf.errors.InvalidArgumentError, tf.errors.NotFoundError)


def train_image(encoded: Any, side: int, seed: Any) -> Any:
    """Take a random crop, resized to `side`, flipped half of the time.

    The crop has 0.08 to 1 of the area and an aspect of 3/4 to 4/3.

    uint8 string tensor -> (side, side, 3) float32, 0 to 255. Szegedy et al. 2015, section 6.
    """
    shape = tf.image.extract_jpeg_shape(encoded)
    begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
        shape,
        bounding_boxes=tf.constant([[[0.0, 0.0, 1.0, 1.0]]]),
        seed=seed,
        min_object_covered=0.0,
        aspect_ratio_range=CROP_ASPECT,
        area_range=CROP_AREA,
        max_attempts=CROP_ATTEMPTS,
        use_image_if_no_bounding_boxes=True,
    )
    image = _cropped(encoded, begin[0], begin[1], size[0], size[1])
    image = tf.image.resize(image, (side, side))
    # Another seed than the crop's: with the same one, both would follow from the same numbers.
    return tf.image.stateless_random_flip_left_right(image, seed + 1)


def validation_image(encoded: Any, side: int) -> Any:
    """Resize the short side to 256 and crop the central 224, or in that ratio.

    Gives (side, side, 3) float32, 0 to 255. The central square of 224/256 of the short side is
    cropped first and then resized: the same pixels, less work.
    """
    shape = tf.cast(tf.image.extract_jpeg_shape(encoded), tf.float32)
    crop = tf.minimum(shape[0], shape[1]) / SHORT_SIDE
    size = tf.maximum(tf.cast(tf.round(crop), tf.int32), 1)
    top = tf.cast((shape[0] - crop) / 2, tf.int32)
    left = tf.cast((shape[1] - crop) / 2, tf.int32)
    return tf.image.resize(_cropped(encoded, top, left, size, size), (side, side))


def normalised(image: Any) -> Any:
    """Scale to mean 0 and standard deviation 1 by channel: (S, S, 3) float32."""
    side = image.shape[1]
    scale, shift = scale_and_shift(side)
    return tf.reshape(tf.reshape(image, (side, 3 * side)) * scale - shift, (side, side, 3))


def _cropped(encoded: Any, top: Any, left: Any, height: Any, width: Any) -> Any:
    """Decode the crop alone, which takes a fraction of the time."""
    return tf.image.decode_and_crop_jpeg(encoded, tf.stack([top, left, height, width]), channels=3)


def train_dataset(examples: Any, dataset: Dataset, request: TrainRequest, seed: tuple[int, int]) -> Any:
    """Shuffle, transform and batch pairs of encoded image and label (from 0)."""
    folded = tf.random.experimental.stateless_fold_in(tf.constant(seed, tf.int64), 0)

    def transform(number: Any, example: tuple[Any, Any]) -> tuple[Any, Any]:
        own = tf.random.experimental.stateless_fold_in(folded, number)
        return normalised(train_image(example[0], dataset.image_size, own)), example[1]

    # An image's crop follows from its number behind the shuffle, whichever thread makes it.
    shuffled = examples.shuffle(request.shuffle_buffer, seed=seed[0] + seed[1]).enumerate()
    return _batched(shuffled.map(transform, num_parallel_calls=request.parallel_decode), dataset.classes, request)


def validation_dataset(examples: Any, dataset: Dataset, request: TrainRequest) -> Any:
    """Transform and batch pairs of encoded image and label (from 0), in order."""

    def transform(encoded: Any, label: Any) -> tuple[Any, Any]:
        return normalised(validation_image(encoded, dataset.image_size)), label

    return _batched(examples.map(transform, num_parallel_calls=request.parallel_decode), dataset.classes, request)


def _batched(images: Any, classes: int, request: TrainRequest) -> Any:
    def one_hot(batch: Any, labels: Any) -> tuple[Any, Any]:
        return batch, tf.one_hot(labels, classes)

    batches = images.batch(request.batch_size).map(one_hot)
    # A pool of its own: tf.data's common one would use all cores, and other replicas share the
    # node.
    options = tf.data.Options()
    options.threading.private_threadpool_size = request.parallel_decode
    batches = batches.with_options(options)
    devices = tf.config.list_logical_devices("GPU")
    if devices:
        return batches.apply(tf.data.experimental.prefetch_to_device(devices[0].name, PREFETCHED_BATCHES))
    return batches.prefetch(PREFETCHED_BATCHES)


def _refusing(message: str) -> Path | None:
    """The file whose storage refuses by a message of TensorFlow; None: the message is another."""
    for words in REFUSED:
        before, found, _ = message.partition(words)
        if found:
            return Path(before.rpartition("}} ")[2])
    return None


def _first_byte(file: Path) -> bytes:
    with file.open("rb", buffering=0) as stream:
        return stream.read(1)


def checked(batches: Any, folder: Path, split: Split) -> Batches:
    """Pass batches on.

    Raises TrialFailedError with the split's name, because TensorFlow names no damaged file: of the
    kind "data", or "storage" if the storage refuses. As TensorFlow's readers cannot go on after an
    error, the storage is waited for here, and the training is resumed then.
    """
    try:
        yield from batches
    except tf.errors.OpError as error:
        whole = str(error.message).splitlines()[0]
        first = whole[:300]
        if (file := _refusing(whole)) is not None:
            with contextlib.suppress(OSError):
                with_patience(partial(_first_byte, file), file)
            raise TrialFailedError("storage", f"{folder}, {split}: {first}") from None
        if not isinstance(error, OF_DATA):
            raise
        reason = f"{folder}, {split}: {first}; find it with: aiperf dataset check {folder}"
        raise TrialFailedError("data", reason) from None
