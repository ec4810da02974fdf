"""Data sets: sizes, classes and sensible training defaults."""

from dataclasses import dataclass
from pathlib import Path

from aiperf.config.dataset_manifest import read_dataset_manifest
from aiperf.config.fingerprints import registered_fingerprints
from aiperf.errors import DatasetError


@dataclass(frozen=True, slots=True)
class Dataset:
    """A labelled image data set with a fixed split."""

    name: str
    train_images: int
    validation_images: int
    image_size: int
    """Side of the square RGB training images, in pixels."""
    classes: int
    batch_size: int
    """Default images per accelerator and step."""
    max_epochs: int
    """Default maximum of epochs of a trial."""
    embedded: bool = False
    """True if it comes with the software; others are in `run.data_dir`."""


IMAGENET = Dataset("imagenet", 1_281_167, 50_000, 224, 1000, batch_size=448, max_epochs=60)
"""ILSVRC2012 (Russakovsky et al. 2015); batch size and epochs from the AIPerf paper, Table 4."""

DIGITS = Dataset("digits", 1_437, 360, 32, 10, batch_size=64, max_epochs=8, embedded=True)
"""scikit-learn's 1,797 digits (UCI, Alpaydin and Kaynak 1998), 8 x 8 scaled up; 20 % validate."""

IMAGES_BATCH = 64
"""Default batch size of the data set `images`."""

IMAGES = "images"
"""Any images in ImageNet's format: their directory gives sizes and classes. Never official."""

DATASETS = (IMAGENET.name, DIGITS.name, IMAGES)
"""Names that a configuration may give."""

REGISTERED = registered_fingerprints()
"""Fingerprints that data sets must have, by name (`fingerprints.toml`)."""


def known_fingerprint(name: str, data_dir: str | None) -> str | None:
    """The fingerprint of a data set: registered if embedded, else as its dataset.json says.

    None if it is unknown, also if the directory does not describe it.
    """
    if name == DIGITS.name:
        return REGISTERED[name]
    if data_dir is None:
        return None
    try:
        return read_dataset_manifest(Path(data_dir)).fingerprint
    except DatasetError:
        return None


def data_problems(name: str, data_dir: str | None, must_exist: bool = True) -> list[str]:
    """Reasons why a data set cannot be trained from a directory; empty if there are none.

    Without `must_exist`, a missing directory is not a problem: it may exist on other nodes.
    """
    if name == DIGITS.name:
        return []
    if data_dir is None:
        return [f"run.data_dir: data set {name!r} needs the directory of its files; or use --dataset digits (embedded)"]
    if not must_exist and not Path(data_dir).exists():
        return []
    try:
        manifest = read_dataset_manifest(Path(data_dir))
    except DatasetError as error:
        return [str(error)]
    found = (manifest.train.images, manifest.validation.images, len(manifest.class_names))
    wanted = (IMAGENET.train_images, IMAGENET.validation_images, IMAGENET.classes)
    if name == IMAGENET.name and found != wanted:
        return [
            f"{data_dir}: data set 'imagenet' has {wanted[0]} training and {wanted[1]} validation images of "
            f"{wanted[2]} classes; found {found[0]}, {found[1]} and {found[2]}; "
            "use --dataset images for other data (unofficial)"
        ]
    return []


_DESCRIBED = {dataset.name: dataset for dataset in (IMAGENET, DIGITS)}


def find_dataset(name: str, data_dir: str | None) -> Dataset:
    """A data set by name. Raises DatasetError if `images` has no directory that describes it."""
    if name != IMAGES:
        return _DESCRIBED[name]
    if data_dir is None:
        raise DatasetError("data set 'images' needs run.data_dir, a directory made by: aiperf dataset prepare")
    manifest = read_dataset_manifest(Path(data_dir))
    return Dataset(
        IMAGES,
        manifest.train.images,
        manifest.validation.images,
        manifest.image_size,
        len(manifest.class_names),
        batch_size=IMAGES_BATCH,
        max_epochs=IMAGENET.max_epochs,
    )
