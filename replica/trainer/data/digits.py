"""The embedded data set: scikit-learn's 1,797 handwritten digits, scaled up to 32 x 32 RGB."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from aiperf.config.datasets import DIGITS, Dataset
from replica.trainer.data.contract import Batches, Shard

SPLIT_SEED = 0
"""The split is part of the data set: the same for every run."""

Split = tuple[NDArray[np.float32], NDArray[np.float32]]


class DigitsSource:
    """Bilinear resize, grey to RGB, mean and standard deviation of the training images taken off."""

    def __init__(self) -> None:
        self._train, self._validation = _load()

    @property
    def dataset(self) -> Dataset:
        """Sizes and classes of the digits."""
        return DIGITS

    def train_batches(self, batch_size: int, seed: int, epoch: int, shard: Shard) -> Batches:
        """The shard's images, shuffled over the whole set: each rank takes its part of every global batch."""
        order = np.random.default_rng((seed, epoch)).permutation(len(self._train[0]))
        return _batches(self._train, order, batch_size, shard)

    def validation_batches(self, batch_size: int, shard: Shard) -> Batches:
        """The shard's validation images once, in a fixed order."""
        return _batches(self._validation, np.arange(len(self._validation[0])), batch_size, shard)


def _load() -> tuple[Split, Split]:
    digits: Any = load_digits()
    grey = digits.images[..., None].astype(np.float32)
    images = tf.image.grayscale_to_rgb(tf.image.resize(grey, (DIGITS.image_size, DIGITS.image_size))).numpy()
    labels = np.eye(DIGITS.classes, dtype=np.float32)[digits.target]
    train, validation, train_labels, validation_labels = train_test_split(
        images, labels, test_size=DIGITS.validation_images, random_state=SPLIT_SEED, stratify=digits.target
    )
    mean, deviation = train.mean(), train.std()
    return ((train - mean) / deviation, train_labels), ((validation - mean) / deviation, validation_labels)


def _batches(split: Split, order: NDArray[np.intp], batch_size: int, shard: Shard) -> Batches:
    images, labels = split
    global_batch = batch_size * shard.ranks
    for start in range(0, len(order), global_batch):
        together = order[start : start + global_batch]
        share = shard.share(len(together))
        chosen = together[share.start : share.stop]
        if len(chosen):
            yield tf.constant(images[chosen]), tf.constant(labels[chosen])
