"""Input pipelines by name, and the choice among them."""

from pathlib import Path

from aiperf.config.dataset_manifest import read_dataset_manifest
from aiperf.config.datasets import DIGITS, Dataset
from aiperf.errors import DatasetError
from aiperf.registry import Registry
from aiperf.wire.messages import ArchitectureRequest, TrainRequest
from replica.trainer.data.contract import DataSource
from workloads.data.sets import ScienceSet

SOURCES: Registry[type[DataSource]] = Registry(
    "data source",
    {
        "digits": "replica.trainer.data.digits:DigitsSource",
        "tfrecord": "replica.trainer.data.tfrecord:TFRecordSource",
        "folder": "replica.trainer.data.folder:FolderSource",
        "portable-tfrecord": "replica.trainer.data.portable.tfrecord:PortableTFRecordSource",
        "portable-folder": "replica.trainer.data.portable.folder:PortableFolderSource",
        "synthetic": "replica.trainer.data.synthetic:SyntheticSource",
        "hep": "replica.trainer.data.science.collisions:CollisionSource",
        "ewa": "replica.trainer.data.science.weather:WeatherSource",
        "ewa-semi": "replica.trainer.data.science.weather:HalfLabelledSource",
        "cos": "replica.trainer.data.science.cubes:CubeSource",
        "cos-fields": "replica.trainer.data.science.fields:FieldSource",
        "cos-slices": "replica.trainer.data.science.fields:SliceSource",
    },
)


def choose_source(request: TrainRequest, dataset: Dataset | ScienceSet, pipeline: str = "tensorflow") -> str:
    """Choose the source by name: synthetic if asked for, else by data set and format of its files.

    `pipeline` is the framework's, which decodes the files. Raises DatasetError if the directory is
    missing or has no description.
    """
    if isinstance(dataset, ScienceSet):
        return dataset.name
    if isinstance(request, ArchitectureRequest) and request.synthetic_input:
        return "synthetic"
    if dataset.name == DIGITS.name:
        return "digits"
    form = read_dataset_manifest(data_directory(request, dataset)).format
    return form if pipeline == "tensorflow" else f"portable-{form}"


def data_directory(request: TrainRequest, dataset: Dataset) -> Path:
    """The directory of the files. Raises DatasetError if the request has none."""
    if request.data_dir is None:
        raise DatasetError(f"data set {dataset.name!r} needs run.data_dir")
    return Path(request.data_dir)


def open_source(request: TrainRequest, dataset: Dataset | ScienceSet, pipeline: str = "tensorflow") -> DataSource:
    """Open the input pipeline that a request names.

    Raises DatasetError if its directory is not what it should be.
    """
    return SOURCES.load(choose_source(request, dataset, pipeline)).open(request, dataset)
