"""Image folders, read without TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from aiperf.config.dataset_manifest import DatasetManifest, read_dataset_manifest, read_index
from aiperf.config.datasets import Dataset
from aiperf.messages import TrainRequest
from replica.trainer.data import data_directory
from replica.trainer.data.contract import Batches, RankShare
from replica.trainer.data.portable.stream import checked, train_batches, validation_batches


class PortableFolderSource:
    """Gives each rank its part of a random order of all files."""

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
        batches = train_batches(examples, self.dataset, self._request, (seed, epoch, share.rank, share.ranks))
        return checked(batches, self._folder, "train")

    def validation_batches(self, batch_size: int, share: RankShare) -> Batches:
        """The rank's validation images once, in the order of the index."""
        own = share.of(len(self._validation))
        examples = self._examples(self._validation[own.start : own.stop])
        return checked(validation_batches(examples, self.dataset, self._request), self._folder, "validation")

    def _examples(self, rows: NDArray[Any]) -> Iterator[tuple[bytes, int]]:
        for name, label in rows:
            yield (self._folder / name).read_bytes(), int(label) - 1
