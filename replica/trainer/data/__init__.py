"""Input pipelines by data set: the one place where a new data set is registered."""

from __future__ import annotations

from pathlib import Path

from aiperf.config.dataset_manifest import read_dataset_manifest
from aiperf.config.datasets import DIGITS, find_dataset
from aiperf.errors import DatasetError
from aiperf.messages import TrainRequest
from replica.trainer.data.contract import DataSource
from replica.trainer.data.digits import DigitsSource
from replica.trainer.data.folder import FolderSource
from replica.trainer.data.synthetic import SyntheticSource
from replica.trainer.data.tfrecord import TFRecordSource


def open_source(request: TrainRequest) -> DataSource:
    """The input pipeline that a request names. Raises DatasetError where its directory is not what it should be."""
    dataset = find_dataset(request.dataset, request.data_dir)
    if request.synthetic_input:
        return SyntheticSource(dataset)
    if dataset.name == DIGITS.name:
        return DigitsSource()
    if request.data_dir is None:
        raise DatasetError(f"data set {dataset.name!r} needs run.data_dir")
    manifest = read_dataset_manifest(Path(request.data_dir))
    kind = TFRecordSource if manifest.format == "tfrecord" else FolderSource
    return kind(dataset, Path(request.data_dir), manifest, request)
