"""Sources of images: ImageNet's own tar files, or folders.

A source lists places and needs no TensorFlow.
"""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass
from pathlib import Path

from aiperf.config.dataset_manifest import Split
from aiperf.errors import DatasetError
from aiperf.untrusted.reading import reason_of, shortened
from aiperf.untrusted.tar import tar_members
from aiperf.untrusted.text import is_printable
from workloads.datasets.devkit.synsets import validation_synsets

IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif"})

TRAIN_TAR = "ILSVRC2012_img_train.tar"
VALIDATION_TAR = "ILSVRC2012_img_val.tar"
DEVKIT_TAR = "ILSVRC2012_devkit_t12.tar.gz"


@dataclass(frozen=True, slots=True)
class Place:
    """The place of one image: a file, or a stretch of one (`size_bytes` None: the whole file)."""

    name: str
    label: int
    path: Path
    offset: int = 0
    size_bytes: int | None = None

    def read(self) -> bytes:
        """Read the encoded image. Raises OSError."""
        with self.path.open("rb") as stream:
            stream.seek(self.offset)
            return stream.read(-1 if self.size_bytes is None else self.size_bytes)


@dataclass(frozen=True, slots=True)
class ImageSource:
    """All images of a data set; label i is class_names[i - 1]."""

    description: str
    class_names: tuple[str, ...]
    train: tuple[Place, ...]
    validation: tuple[Place, ...]

    def places(self, split: Split) -> tuple[Place, ...]:
        """The images of one split."""
        return self.train if split == "train" else self.validation


def open_source(source: Path) -> ImageSource:
    """Open ImageNet's tar files, else the folders train/ and validation/ (or val/).

    Raises DatasetError naming what is missing.
    """
    if (source / TRAIN_TAR).exists():
        return open_imagenet(source)
    return open_folders(source)


def open_folders(source: Path) -> ImageSource:
    """Open `train/<class>/*` and `validation/<class>/*`; classes in alphabetical order.

    Raises DatasetError.
    """
    validation = source / "validation" if (source / "validation").is_dir() else source / "val"
    for folder in (source / "train", validation):
        if not folder.is_dir():
            raise DatasetError(
                f"{source}: has neither {TRAIN_TAR} nor the folders train/ and validation/ with one folder a class"
            )
    names = tuple(sorted(entry.name for entry in os.scandir(source / "train") if entry.is_dir()))
    if unfit := [name for name in (str(source), *names) if not is_printable(name)]:
        raise DatasetError(f"{shortened(unfit[0])}: has a name with control characters, or that is not UTF-8")
    strange = sorted({entry.name for entry in os.scandir(validation) if entry.is_dir()} - set(names))
    if strange:
        raise DatasetError(f"{validation}: classes that {source / 'train'} does not have: {', '.join(strange[:10])}")
    if len(names) < 2:
        raise DatasetError(f"{source / 'train'}: holds {len(names)} class folder(s); at least 2 are needed")
    return ImageSource(f"folders {source}", names, _walk(source / "train", names), _walk(validation, names))


def _walk(folder: Path, names: tuple[str, ...]) -> tuple[Place, ...]:
    places = [
        Place(f"{name}/{path.name}", label, path)
        for label, name in enumerate(names, start=1)
        if (folder / name).is_dir()
        for path in sorted((folder / name).iterdir())
        if path.suffix.lower() in IMAGE_SUFFIXES
    ]
    if not places:
        raise DatasetError(f"{folder}: holds no images ({', '.join(sorted(IMAGE_SUFFIXES))})")
    return tuple(places)


def open_imagenet(source: Path) -> ImageSource:
    """Open ILSVRC2012's archives: training, validation, development kit.

    Nothing is unpacked: images are found by offset. Raises DatasetError if an archive is missing or
    is another one.
    """
    for name in (VALIDATION_TAR, DEVKIT_TAR):
        if not (source / name).exists():
            raise DatasetError(
                f"{source}: {name} is missing; {TRAIN_TAR}, {VALIDATION_TAR} and {DEVKIT_TAR} are needed"
            )
    try:
        train = _train_members(source / TRAIN_TAR)
        names = tuple(sorted({synset for synset, _ in train}))
        label = {name: number for number, name in enumerate(names, start=1)}
        ordered = tuple(Place(p.name, label[synset], p.path, p.offset, p.size_bytes) for synset, p in train)
        truth = validation_synsets(source / DEVKIT_TAR)
        members = sorted(_members(source / VALIDATION_TAR), key=lambda place: place.name)
        if len(members) != len(truth):
            raise DatasetError(f"{source}: {len(members)} validation images, but {len(truth)} labels")
        if strange := set(truth) - label.keys():
            raise DatasetError(f"{source}: {len(strange)} classes of validation images have no training images")
        validation = tuple(
            Place(p.name, label[synset], p.path, p.offset, p.size_bytes)
            for p, synset in zip(members, truth, strict=True)
        )
    except (EOFError, OSError, ValueError, zlib.error) as error:
        raise DatasetError(f"{source}: is not ILSVRC2012 as published: {reason_of(error)}") from None
    return ImageSource(f"ILSVRC2012 archives {source}", names, ordered, validation)


def _members(path: Path, start: int = 0, end: int | None = None) -> list[Place]:
    """The files of the archive that is `path`, or a stretch of it."""
    with path.open("rb") as stream:
        found = tar_members(stream, path.stat().st_size if end is None else end, start)
        return [Place(m.name, 0, path, m.offset, m.size) for m in found if not m.folder]


def _train_members(path: Path) -> list[tuple[str, Place]]:
    """The archive of archives: one for each class, named by its synset."""
    return [
        (Path(inner.name).stem, place)
        for inner in _members(path)
        for place in _members(path, inner.offset, inner.offset + (inner.size_bytes or 0))
    ]
