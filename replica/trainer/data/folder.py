"""Image folders, `train/<class>/*.JPEG` and `validation/<class>/*.JPEG`, read through indexes."""

from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from replica.trainer.data.contract import Batches, RankShare
from replica.trainer.data.directories import ImageFiles
from replica.trainer.data.images import checked, train_dataset, validation_dataset


class FolderSource(ImageFiles):
    """The source that gives each rank its part of a random order of all files.

    On NFS, small files cost more than TFRecords.
    """

    def train_batches(self, batch_size: int, seed: int, epoch: int, share: RankShare) -> Batches:
        """Yield the rank's images once, shuffled over the whole set."""
        examples = self._examples(self._train_rows(seed, epoch, share))
        # The second number differs for each epoch and rank, so that no two of them shuffle alike.
        seeds = (seed, epoch * share.all_ranks + share.number)
        batches = train_dataset(examples, self.dataset, self._request, seeds)
        return checked(batches, self._folder, "train")

    def validation_batches(self, batch_size: int, share: RankShare) -> Batches:
        """Yield the rank's validation images once, in the order of the index."""
        examples = self._examples(self._validation_rows(share))
        return checked(validation_dataset(examples, self.dataset, self._request), self._folder, "validation")

    def known_batches(self, batch_size: int, seed: int, share: RankShare) -> Batches:
        """Yield the rank's training images once, in a random order of all files."""
        examples = self._examples(self._train_rows(seed, 0, share))
        return checked(validation_dataset(examples, self.dataset, self._request), self._folder, "train")

    def _examples(self, rows: NDArray[Any]) -> Any:
        names = tf.constant([str(self._folder / name) for name in rows[:, 0]], tf.string)
        labels = tf.constant(rows[:, 1].astype(np.int64) - 1)
        listed = tf.data.Dataset.from_tensor_slices((names, labels))
        return listed.map(
            lambda name, label: (tf.io.read_file(name), label), num_parallel_calls=self._request.parallel_decode
        )
