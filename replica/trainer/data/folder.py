"""Image folders, `train/<class>/*.JPEG` and `validation/<class>/*.JPEG`, read through indexes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from aiperf.config.dataset_manifest import DatasetManifest, read_dataset_manifest, read_index
from aiperf.config.datasets import Dataset
from aiperf.messages import TrainRequest
from replica.trainer.data import data_directory
from replica.trainer.data.contract import Batches, RankShare
from replica.trainer.data.images import checked, train_dataset, validation_dataset


class FolderSource:
    """Gives each rank its part of a random order of all files.

    On NFS, small files cost more than TFRecords.
    """

    def __init__(self, dataset: Dataset, folder: Path, manifest: DatasetManifest, request: TrainRequest) -> None:
        self.dataset = dataset
        self._folder = folder
        self._request = request
        self._train = np.array(read_index(folder, manifest, "train"))
        self._validation = np.array(read_index(folder, manifest, "validation"))

    @classmethod
    def open(cls, request: TrainRequest, dataset: Dataset) -> Self:
        """Open a directory that its dataset.json describes. Raises DatasetError."""
        folder = data_directory(request)
        return cls(dataset, folder, read_dataset_manifest(folder), request)

    def train_batches(self, batch_size: int, seed: int, epoch: int, share: RankShare) -> Batches:
        """The rank's images once, shuffled over the whole set."""
        order = np.random.default_rng((seed, epoch)).permutation(len(self._train))
        own = share.of(len(order))
        examples = self._examples(self._train[order[own.start : own.stop]])
        seeds = (seed, epoch * share.ranks + share.rank)
        batches = train_dataset(examples, self.dataset, self._request, seeds)
        return checked(batches, self._folder, "train")

    def validation_batches(self, batch_size: int, share: RankShare) -> Batches:
        """The rank's validation images once, in the order of the index."""
        own = share.of(len(self._validation))
        examples = self._examples(self._validation[own.start : own.stop])
        return checked(validation_dataset(examples, self.dataset, self._request), self._folder, "validation")

    def _examples(self, rows: NDArray[Any]) -> Any:
        names = tf.constant([str(self._folder / name) for name in rows[:, 0]], tf.string)
        labels = tf.constant(rows[:, 1].astype(np.int64) - 1)
        listed = tf.data.Dataset.from_tensor_slices((names, labels))
        return listed.map(
            lambda name, label: (tf.io.read_file(name), label), num_parallel_calls=self._request.parallel_decode
        )
