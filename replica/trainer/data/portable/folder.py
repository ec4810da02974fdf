"""Image folders, read without TensorFlow."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiperf.config.dataset_manifest import DatasetManifest
from aiperf.config.datasets import Dataset
from aiperf.storage.patience import with_patience
from aiperf.wire.messages import TrainRequest
from replica.trainer.data.contract import Batches, RankShare
from replica.trainer.data.directories import ImageFiles
from replica.trainer.data.portable.decoders import open_decoders
from replica.trainer.data.portable.stream import batches_of, checked, train_batches


class PortableFolderSource(ImageFiles):
    """The source that gives each rank its part of a random order of all files."""

    input_type = np.uint8

    def __init__(self, dataset: Dataset, folder: Path, manifest: DatasetManifest, request: TrainRequest) -> None:
        super().__init__(dataset, folder, manifest, request)
        self._decoding = open_decoders(request)

    def train_batches(self, batch_size: int, seed: int, epoch: int, share: RankShare) -> Batches:
        """Yield the rank's images once, shuffled over the whole set."""
        examples = self._examples(self._train_rows(seed, epoch, share))
        key = (seed, epoch, share.number, share.all_ranks)
        batches = train_batches(examples, self.dataset, self._request, self._decoding, key)
        return checked(batches, self._folder, "train")

    def validation_batches(self, batch_size: int, share: RankShare) -> Batches:
        """Yield the rank's validation images once, in the order of the index."""
        examples = self._examples(self._validation_rows(share))
        return checked(batches_of(examples, self.dataset, self._request, self._decoding), self._folder, "validation")

    def known_batches(self, batch_size: int, seed: int, share: RankShare) -> Batches:
        """Yield the rank's training images once, in a random order of all files."""
        examples = self._examples(self._train_rows(seed, 0, share))
        return checked(batches_of(examples, self.dataset, self._request, self._decoding), self._folder, "train")

    def _examples(self, rows: NDArray[Any]) -> Iterator[tuple[bytes, int]]:
        for name, label in rows:
            path = self._folder / name
            yield with_patience(path.read_bytes, path), int(label) - 1
