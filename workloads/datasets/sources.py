"""Sources of images: ImageNet's own tar files, ImageNet as Kaggle packs it, or folders.

A source lists places and needs no TensorFlow.
"""

import csv
import os
import unicodedata
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aiperf.config.dataset_manifest import MANIFEST_NAME, Split
from aiperf.errors import DatasetError
from aiperf.untrusted.folders import files_below, is_technical
from aiperf.untrusted.reading import MIB, Limits, read_outside, reason_of, shortened
from aiperf.untrusted.tar import tar_members
from aiperf.untrusted.text import is_printable
from workloads.datasets.devkit import validation_synsets
from workloads.datasets.layouts import (
    IMAGE_SUFFIXES,
    TRAIN_TAR,
    WANTED,
    found_in,
    kaggle_folder,
    shards_in_folders,
)

VALIDATION_TAR = "ILSVRC2012_img_val.tar"
DEVKIT_TAR = "ILSVRC2012_devkit_t12.tar.gz"
VALIDATION_LIST, MAPPING = "LOC_val_solution.csv", "LOC_synset_mapping.txt"


@dataclass(frozen=True, slots=True)
class Place:
    """The place of one image: a file, or a part of one (`size_bytes` None: the whole file)."""

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
    left_out: tuple[tuple[str, str], ...] = ()
    """Files and folders that are not in the data set: name below the source, and reason."""

    def places(self, split: Split) -> tuple[Place, ...]:
        """The images of one split."""
        return self.train if split == "train" else self.validation


def open_source(source: Path) -> ImageSource:
    """Open ImageNet's tar files, ImageNet as Kaggle packs it, or train/ and validation/ (or val/).

    Raises DatasetError naming what was found instead, or what is missing.
    """
    if (source / TRAIN_TAR).exists():
        return open_imagenet(source)
    return open_folders(source)


def open_folders(source: Path) -> ImageSource:
    """Open `train/<class>/*` and `validation/<class>/*`; classes in alphabetical order.

    Validation images that lie in one folder need the list of labels of ImageNet on Kaggle. Raises
    DatasetError.
    """
    root = kaggle_folder(source) or source
    if not source.is_dir():
        raise DatasetError(f"{source}: {found_in(source)}; {WANTED}")
    validation = root / "validation" if (root / "validation").is_dir() else root / "val"
    if not ((root / "train").is_dir() and validation.is_dir()):
        raise DatasetError(f"{source}: {found_in(source)}; {WANTED}")
    if shards := shards_in_folders(root):
        raise DatasetError(f"{source}: {shards}")
    own = {"train", validation.name, MANIFEST_NAME, VALIDATION_LIST, MAPPING}
    left_out = [
        (_shown(entry, root), "neither in train/ nor in the folder of validation images")
        for entry in _listed(root)
        if entry.name not in own
    ]
    folders, more = _entries(root / "train", root)
    left_out += more
    names = tuple(entry.name for entry in folders)
    if unfit := [name for name in (str(source), *names) if not is_printable(name)]:
        raise DatasetError(f"{shortened(unfit[0])}: has a name with control characters, or that is not UTF-8")
    if len(names) < 2:
        raise DatasetError(
            f"{root / 'train'}: holds {len(names)} class folder(s) and {len(more)} other files; at least 2 folders, "
            "one a class, are needed"
        )
    _check_distinct(root / "train", names)
    _check_mapping(root, names)
    train, more = _walk(root, root / "train", names)
    left_out += more
    if empty := sorted(set(names) - {names[place.label - 1] for place in train}):
        raise DatasetError(
            f"{root / 'train'}: {len(empty)} of {len(names)} class folders hold no images: "
            f"{', '.join(map(repr, empty[:10]))}; remove them, or add their images"
        )
    held, more = _validation(root, validation, names)
    return ImageSource(f"folders {source}", names, train, held, (*left_out, *more))


LeftOut = list[tuple[str, str]]

TECHNICAL, OUTSIDE = "of a program or file system", "outside of the class folders"
"""Reasons why files are left out."""


def _of_kaggle(root: Path, name: str) -> Path | None:
    """Find a list of ImageNet on Kaggle: next to the folders of images, or as in the archive."""
    above = list(root.absolute().parents)[:3]  # Data, ILSVRC, and the folder with the lists
    packed = bool(above) and kaggle_folder(above[-1]) == root.absolute()
    places = [root, *above] if packed else [root]
    return next((place / name for place in places if (place / name).is_file()), None)


def _check_mapping(root: Path, names: Sequence[str]) -> None:
    """Raise DatasetError for classes of LOC_synset_mapping.txt that have no folder."""
    path = _of_kaggle(root, MAPPING)
    if path is None:
        return
    limits = Limits(size=64 * MIB)
    synsets = read_outside(
        path,
        lambda data: [line.split()[0] for line in data.decode().splitlines() if line.strip()],
        limits,
        DatasetError,
        "a list of ImageNet's classes",
    )
    if missing := sorted(set(synsets) - set(names)):
        few = ", ".join(map(shortened, missing[:5]))
        raise DatasetError(
            f"{root / 'train'}: {len(missing)} of the {len(synsets)} classes of {path.name} have no folder: {few}"
        )


def _validation(root: Path, validation: Path, names: Sequence[str]) -> tuple[tuple[Place, ...], LeftOut]:
    folders, left_out = _entries(validation, root)
    flat = [root / name for name, reason in left_out if reason == OUTSIDE and _has_image_suffix(name)]
    if flat and not folders:
        return _flat(root, flat, names), [pair for pair in left_out if root / pair[0] not in set(flat)]
    _check_classes(root / "train", validation, names, [entry.name for entry in folders])
    places, more = _walk(root, validation, names)
    if not places:
        raise DatasetError(f"{validation}: holds no images ({', '.join(sorted(IMAGE_SUFFIXES))})")
    return places, left_out + more


def _has_image_suffix(name: str) -> bool:
    return Path(name).suffix.lower() in IMAGE_SUFFIXES


def _listed(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:  # which know folders from files without a look at each
        return sorted(entries, key=lambda entry: entry.name)


def _shown(entry: os.DirEntry[str], root: Path) -> str:
    """The name of a file below the source; of a folder, with the number of files in it."""
    name = str(Path(entry.path).relative_to(root))
    if not entry.is_dir():
        return name
    return f"{name}/ (files: {sum(1 for _ in files_below(Path(entry.path), file_systems_own=True))})"


def _entries(folder: Path, root: Path) -> tuple[list[Path], LeftOut]:
    """List the class folders of a split, in order, and all else that lies in it."""
    found: list[Path] = []
    left_out: LeftOut = []
    for entry in _listed(folder):
        if is_technical(entry.name):
            left_out.append((_shown(entry, root), TECHNICAL))
        elif entry.is_dir():
            found.append(Path(entry.path))
        else:
            left_out.append((_shown(entry, root), OUTSIDE))
    return found, left_out


def _walk(root: Path, folder: Path, names: Sequence[str]) -> tuple[tuple[Place, ...], LeftOut]:
    """List the images of a split's class folders, and all else that lies in them."""
    places: list[Place] = []
    left_out: LeftOut = []
    for label, name in enumerate(names, start=1):
        for entry in _listed(folder / name) if (folder / name).is_dir() else ():
            if entry.is_dir():
                reason = TECHNICAL if is_technical(entry.name) else "a folder in a class folder"
                left_out.append((_shown(entry, root), reason))
            # By the suffix alone: opening a million files on a network file system takes long.
            elif is_technical(entry.name) or not _has_image_suffix(entry.name):
                reason = TECHNICAL if is_technical(entry.name) else f"the suffix {Path(entry.name).suffix!r}"
                left_out.append((_shown(entry, root), reason))
            elif not (entry.is_file() or entry.is_symlink()):  # a reader would wait for a pipe without an end
                left_out.append((_shown(entry, root), "no file, but a pipe, socket or device"))
            else:
                places.append(Place(f"{name}/{entry.name}", label, Path(entry.path)))
    return tuple(places), left_out


def _check_distinct(folder: Path, names: Sequence[str]) -> None:
    """Raise DatasetError for two classes whose names look the same.

    macOS often writes names in another form of Unicode (NFD) than Linux: a data set that was copied
    in parts may have both.
    """
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(unicodedata.normalize("NFC", name), name)
        if other != name:
            raise DatasetError(
                f"{folder}: has two folders that read {name!r}: their bytes differ ({_bytes_of(other)} and "
                f"{_bytes_of(name)}, Unicode NFC and NFD); make them one"
            )


def _check_classes(train: Path, validation: Path, names: Sequence[str], found: Sequence[str]) -> None:
    """Raise DatasetError for classes of validation images without training images."""
    unknown = sorted(set(found) - set(names))
    # The usual cause of an unknown class: the same name in another form of Unicode.
    composed = {unicodedata.normalize("NFC", name): name for name in names}
    for name in unknown:
        twin = composed.get(unicodedata.normalize("NFC", name))
        if twin is not None:
            raise DatasetError(
                f"{validation}: class {name!r} reads like that of {train}, but its bytes differ: {_bytes_of(name)}, "
                f"and {_bytes_of(twin)} there (other forms of Unicode); rename the one folder as the other"
            )
    if unknown:
        raise DatasetError(
            f"{validation}: {len(unknown)} classes that {train} does not have: {', '.join(map(repr, unknown[:10]))}"
        )


def _bytes_of(name: str) -> str:
    return repr(name.encode(errors="surrogateescape"))[2:-1]


def _flat(root: Path, images: Sequence[Path], names: Sequence[str]) -> tuple[Place, ...]:
    """List validation images that lie in one folder, by the list of labels that Kaggle gives.

    Raises DatasetError.
    """
    folder = images[0].parent
    path = _of_kaggle(root, VALIDATION_LIST)
    if path is None:
        raise DatasetError(
            f"{folder}: {len(images):,} images lie in {folder.name}/ itself and have no labels: sort them into one "
            f"folder a class, or put {VALIDATION_LIST} of ImageNet on Kaggle into {root}"
        )
    label = {name: number for number, name in enumerate(names, start=1)}
    synsets = read_outside(path, _labels, Limits(size=64 * MIB), DatasetError, "a list of ImageNet's validation labels")
    problems = [image.name for image in images if image.stem not in synsets]
    problems += sorted(synsets.keys() - {image.stem for image in images})
    if problems:
        raise DatasetError(
            f"{path}: {len(problems)} images are only there or only in {folder}: {', '.join(problems[:5])}"
        )
    if unknown := sorted(set(synsets.values()) - label.keys()):
        raise DatasetError(
            f"{path}: {len(unknown)} classes have no folder in {root / 'train'}: {', '.join(unknown[:5])}"
        )
    return tuple(Place(image.name, label[synsets[image.stem]], image) for image in images)


def _labels(data: bytes) -> dict[str, str]:
    """Read the class of each image from `ImageId` and `PredictionString` ("n01 85 1 499").

    Raises ValueError.
    """
    rows = csv.DictReader(data.decode("utf-8-sig").splitlines())
    wanted = ("ImageId", "PredictionString")
    if not set(wanted) <= set(rows.fieldnames or ()):
        raise ValueError(f"its columns are {shortened(', '.join(rows.fieldnames or ()))}, not {', '.join(wanted)}")
    found: dict[str, str] = {}
    for number, row in enumerate(rows, start=2):
        image, words = row["ImageId"], (row["PredictionString"] or "").split()
        if not words:
            raise ValueError(f"line {number}: image {shortened(image)} has no class")
        if found.setdefault(image, words[0]) != words[0]:
            raise ValueError(f"line {number}: image {shortened(image)} has two classes")
    return found


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
        # The kit lists labels in the order of the images' names, and an archive may have another
        # order.
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
    """List the files of the archive that is `path`, or a part of it."""
    with path.open("rb") as stream:
        found = tar_members(stream, path.stat().st_size if end is None else end, start)
        return [Place(m.name, 0, path, m.offset, m.size) for m in found if not m.folder]


def _train_members(path: Path) -> list[tuple[str, Place]]:
    """List the images of the archive of archives: one for each class, named by its synset.

    A tar file is not compressed, so that an inner archive, and an image in it, is a part of the
    outer file: nothing need be unpacked.
    """
    return [
        (Path(inner.name).stem, place)
        for inner in _members(path)
        for place in _members(path, inner.offset, inner.offset + (inner.size_bytes or 0))
    ]
