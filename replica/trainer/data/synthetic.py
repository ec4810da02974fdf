"""Images made once on the device, without an input pipeline: to separate compute from input.

Nothing can be learned.
"""

from __future__ import annotations

from typing import Self

import keras

from aiperf.config.datasets import Dataset
from aiperf.messages import TrainRequest
from replica.trainer.data.contract import Batches, RankShare


class SyntheticSource:
    """As many images an epoch as the data set has, all of them the same batch of noise."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset

    @classmethod
    def open(cls, request: TrainRequest, dataset: Dataset) -> Self:
        """Take the place of a data set of any kind; no file is read."""
        return cls(dataset)

    def train_batches(self, batch_size: int, seed: int, epoch: int, share: RankShare) -> Batches:
        """The rank's number of training images."""
        return self._batches(batch_size, len(share.of(self.dataset.train_images)))

    def validation_batches(self, batch_size: int, share: RankShare) -> Batches:
        """The rank's number of validation images."""
        return self._batches(batch_size, len(share.of(self.dataset.validation_images)))

    def _batches(self, batch_size: int, total: int) -> Batches:
        side = self.dataset.image_size
        images = keras.random.normal((batch_size, side, side, 3), dtype="float32", seed=1)
        classes = keras.ops.arange(batch_size, dtype="int32") % self.dataset.classes
        labels = keras.ops.one_hot(classes, self.dataset.classes, dtype="float32")
        for start in range(0, total, batch_size):
            count = min(batch_size, total - start)
            yield (images, labels) if count == batch_size else (images[:count], labels[:count])
