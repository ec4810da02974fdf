"""Images made once on the device, without an input pipeline: to separate compute from input.

There is nothing to learn: validation has other images, and labels that are drawn at random.
"""

from typing import Any, Self

import keras
import numpy as np

from aiperf.config.datasets import Dataset
from aiperf.wire.messages import TrainRequest
from replica.trainer.data.contract import Batches, RankShare

TRAIN_SEED, VALIDATION_SEED = 1, 2


class SyntheticSource:
    """The source of one batch of noise for each split, as often as the data set has images."""

    input_type: type[np.generic] = np.float32

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset

    @classmethod
    def open(cls, request: TrainRequest, dataset: Dataset) -> Self:
        """Take the place of a data set of any kind; no file is read."""
        return cls(dataset)

    def train_batches(self, batch_size: int, seed: int, epoch: int, share: RankShare) -> Batches:
        """Yield the rank's number of training images, with the same labels in every batch."""
        images = self._noise(batch_size, TRAIN_SEED)
        labels = self._one_hot(np.arange(batch_size) % self.dataset.classes)
        for count in _counts(batch_size, len(share.of(self.dataset.train_images))):
            # The same tensors again and again: nothing is copied to the device between steps.
            yield (images, labels) if count == batch_size else (images[:count], labels[:count])

    def validation_batches(self, batch_size: int, share: RankShare) -> Batches:
        """Yield the rank's number of validation images, with labels of their own in every batch.

        The same labels in every batch would be right or wrong together: accuracy would be far from
        chance.
        """
        images = self._noise(batch_size, VALIDATION_SEED)
        draw = np.random.default_rng((VALIDATION_SEED, share.rank))
        for count in _counts(batch_size, len(share.of(self.dataset.validation_images))):
            labels = self._one_hot(draw.integers(self.dataset.classes, size=count))
            yield images if count == batch_size else images[:count], labels

    def known_batches(self, batch_size: int, seed: int, share: RankShare) -> Batches:
        """Yield training images as in any epoch."""
        return self.train_batches(batch_size, seed, 0, share)

    def _noise(self, batch_size: int, seed: int) -> Any:
        side = self.dataset.image_size
        return keras.random.normal((batch_size, side, side, 3), dtype="float32", seed=seed)

    def _one_hot(self, classes: Any) -> Any:
        return keras.ops.one_hot(classes.astype(np.int32), self.dataset.classes, dtype="float32")


def _counts(batch_size: int, total: int) -> list[int]:
    return [min(batch_size, total - start) for start in range(0, total, batch_size)]
