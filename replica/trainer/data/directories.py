"""Directories of images, and each rank's part of them, for any pipeline that reads them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from aiperf.config.dataset_manifest import DatasetManifest, FileEntry, read_dataset_manifest, read_index
from aiperf.config.datasets import Dataset
from aiperf.errors import DatasetError
from aiperf.wire.messages import TrainRequest
from replica.trainer.data import data_directory
from replica.trainer.data.contract import RankShare


class Directory:
    """A directory of images that its dataset.json describes."""

    input_type: type[np.generic] = np.float32

    def __init__(self, dataset: Dataset, folder: Path, manifest: DatasetManifest, request: TrainRequest) -> None:
        self.dataset = dataset
        self._folder = folder
        self._manifest = manifest
        self._request = request

    @classmethod
    def open(cls, request: TrainRequest, dataset: Dataset) -> Self:
        """Open the directory of a request. Raises DatasetError."""
        folder = data_directory(request, dataset)
        return cls(dataset, folder, read_dataset_manifest(folder), request)


class ImageFiles(Directory):
    """Single files, `train/<class>/*.JPEG` and `validation/<class>/*.JPEG`, named by indexes."""

    def __init__(self, dataset: Dataset, folder: Path, manifest: DatasetManifest, request: TrainRequest) -> None:
        super().__init__(dataset, folder, manifest, request)
        self._train = np.array(read_index(folder, manifest, "train"))
        self._validation = np.array(read_index(folder, manifest, "validation"))

    def _train_rows(self, seed: int, epoch: int, share: RankShare) -> NDArray[Any]:
        """The rank's part of a random order of all files: a row of name and label, from 1, each."""
        # Every rank draws the same order and takes its part of it: nothing is exchanged.
        order = np.random.default_rng((seed, epoch)).permutation(len(self._train))
        own = share.of(len(order))
        return self._train[order[own.start : own.stop : own.step]]

    def _validation_rows(self, share: RankShare) -> NDArray[Any]:
        """The rank's validation files in the order of the index, as rows."""
        own = share.of(len(self._validation))
        return self._validation[own.start : own.stop]


class Shards(Directory):
    """TFRecords of `image/encoded` and `image/class/label`, from 1: ImageNet's usual form."""

    def __init__(self, dataset: Dataset, folder: Path, manifest: DatasetManifest, request: TrainRequest) -> None:
        super().__init__(dataset, folder, manifest, request)
        for split in ("train", "validation"):
            missing = [f.name for f in manifest.split(split).files if not (folder / f.name).is_file()]
            if missing:
                raise DatasetError(f"{folder}: {len(missing)} shard(s) are missing, such as {missing[0]}")

    def _train_files(self, seed: int, epoch: int) -> Sequence[FileEntry]:
        """The shards in the random order of an epoch, the same for all ranks."""
        files = self._manifest.train.files
        return [files[index] for index in np.random.default_rng((seed, epoch)).permutation(len(files))]
