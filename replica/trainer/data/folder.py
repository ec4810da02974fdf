"""Image folders: `train/<class>/*.JPEG` and `validation/<class>/*.JPEG`, found through an index of each split."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from aiperf.config.dataset_manifest import DatasetManifest, Split
from aiperf.config.datasets import Dataset
from aiperf.errors import DatasetError
from aiperf.messages import TrainRequest
from replica.trainer.data.contract import Batches, Shard
from replica.trainer.data.images import checked, train_dataset, validation_dataset


class FolderSource:
    """Each rank reads its part of a random order of all files; small files cost more than TFRecords on NFS."""

    def __init__(self, dataset: Dataset, folder: Path, manifest: DatasetManifest, request: TrainRequest) -> None:
        self.dataset = dataset
        self._folder = folder
        self._request = request
        self._train = self._index(manifest, "train")
        self._validation = self._index(manifest, "validation")

    def _index(self, manifest: DatasetManifest, split: Split) -> NDArray[Any]:
        path = self._folder / manifest.split(split).files[0].name
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
            return np.array([line.split("\t") for line in lines])
        except (OSError, ValueError) as error:
            raise DatasetError(f"{path}: is no index of images: {error}") from None

    def train_batches(self, batch_size: int, seed: int, epoch: int, shard: Shard) -> Batches:
        """The shard's images once, shuffled over the whole set."""
        order = np.random.default_rng((seed, epoch)).permutation(len(self._train))
        share = shard.share(len(order))
        examples = self._examples(self._train[order[share.start : share.stop]])
        own = (seed, epoch * shard.ranks + shard.rank)
        batches = train_dataset(examples, self.dataset, self._request, own)
        return checked(batches, self._folder, "train")

    def validation_batches(self, batch_size: int, shard: Shard) -> Batches:
        """The shard's validation images once, in the order of the index."""
        share = shard.share(len(self._validation))
        examples = self._examples(self._validation[share.start : share.stop])
        return checked(validation_dataset(examples, self.dataset, self._request), self._folder, "validation")

    def _examples(self, rows: NDArray[Any]) -> Any:
        names = tf.constant([str(self._folder / name) for name in rows[:, 0]], tf.string)
        labels = tf.constant(rows[:, 1].astype(np.int64) - 1)
        listed = tf.data.Dataset.from_tensor_slices((names, labels))
        return listed.map(
            lambda name, label: (tf.io.read_file(name), label), num_parallel_calls=self._request.parallel_decode
        )
