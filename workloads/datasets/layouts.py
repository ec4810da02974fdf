"""Layouts of data sets that this program does not read: what was found, and the way out."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from aiperf.config.dataset_manifest import MANIFEST_NAME
from aiperf.untrusted.folders import is_technical
from aiperf.untrusted.reading import shortened
from aiperf.untrusted.recognition import described_file

IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif"})

TRAIN_TAR = "ILSVRC2012_img_train.tar"

WANTED = (
    f"wanted is a folder with {TRAIN_TAR} and its companions, with ImageNet as Kaggle packs it "
    "(ILSVRC/Data/CLS-LOC), with train/ and validation/ of one folder a class, with shards such as "
    "train-00000-of-01024, or with scientific data"
)

_KAGGLE = "ILSVRC/Data/CLS-LOC"

_TFDS = re.compile(r".+-(train|validation|test)\.(tfrecord|array_record)-\d{5}-of-\d{5}")
_SHARD = re.compile(r"(train|validation)-\d{5}-of-\d{5}")
_OTHER_SHARD = re.compile(r".*\d{5}-of-\d{5}(\.\w+)?|.+\.tfrecords?(\.gz)?")

_BY_SUFFIX = {
    ".tar": "tar archives",
    ".parquet": "Parquet files, as Hugging Face packs data sets",
    ".mdb": "an LMDB database",
    ".rec": "records of MXNet (RecordIO)",
    ".npz": "arrays of NumPy",
    ".npy": "arrays of NumPy",
    ".h5": "HDF5 files of other names than those of scientific data",
    ".hdf5": "HDF5 files of other names than those of scientific data",
    ".zip": "ZIP archives",
    ".gz": "packed files",
    ".arrow": "Arrow files, as Hugging Face keeps data sets",
}

MOST_LOOKED_AT = 10_000
"""Most names of a folder that are looked at."""


def kaggle_folder(source: Path) -> Path | None:
    """The folder of ImageNet's images as Kaggle packs them, if it is below `source`."""
    parts = _KAGGLE.split("/")
    for start in range(len(parts)):
        folder = source.joinpath(*parts[start:])
        if (folder / "train").is_dir():
            return folder
    return None


def found_in(source: Path) -> str:
    """Describe a path that is not a data set of a known layout, and the way out."""
    if not source.exists():
        return "does not exist"
    if not source.is_dir():
        found = "a shard (TFRecord)" if _SHARD.fullmatch(source.name) else described_file(source)
        packed = "archive" in found or found.startswith("packed by")
        return f"is {found}, not a folder" + ("; unpack it and name its folder" if packed else "")
    names = _names(source)
    if not names:
        return "is empty"
    words = _shards(source, names) or _folders(source, names) or _files(names)
    return words or f"holds {', '.join(map(repr, names[:5]))}{' ...' if len(names) > 5 else ''}"


def _names(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        # A folder of a million images must not take minutes to be refused.
        found = [entry.name for entry, _ in zip(entries, range(MOST_LOOKED_AT), strict=False)]
    return sorted(name for name in found if not is_technical(name))


def _shards(source: Path, names: Sequence[str]) -> str | None:
    tfds = [name for name in names if _TFDS.fullmatch(name)]
    if tfds or {"features.json", "dataset_info.json"} & set(names):
        return (
            f"holds a data set of TensorFlow Datasets ({(tfds or names)[0]}), whose records have other features; "
            "prepare the archives that it was made of (downloads/manual), or write its images into class folders"
        )
    if any(_SHARD.fullmatch(name) for name in names):
        return f"holds shards already; describe them with: aiperf dataset check {source} --write-manifest"
    if inside := shards_in_folders(source):
        return inside
    other = [name for name in names if _OTHER_SHARD.fullmatch(name)]
    if other:
        return (
            f"holds TFRecord files of other names ({other[0]}), as train-00000-of-00004 and validation-00000-of-00001"
        )
    return None


def shards_in_folders(source: Path) -> str | None:
    """Words about shards that lie in a folder for each split; None if none do."""
    for split in ("train", "validation"):
        inside = (
            [name for name in _names(source / split) if _SHARD.fullmatch(name)] if (source / split).is_dir() else ()
        )
        if inside:
            return (
                f"holds shards in folders of their own ({split}/{inside[0]}), as the tools for TPUs write them; "
                f"move them up with: mv {source}/train/train-* {source}/validation/validation-* {source}"
            )
    return None


def _folders(source: Path, names: Sequence[str]) -> str | None:
    folders = [name for name in names if (source / name).is_dir()]
    inner = [name for name in folders if (source / name / MANIFEST_NAME).is_file()]
    if inner:
        return f"holds the data set {source / inner[0]}; name that folder"
    others = ", ".join(f"{shortened(name)}/" for name in folders if name not in ("train", "validation", "val"))
    there = f" (it holds {others})" if others else ""
    if "train" in folders:
        return f"holds train/, and neither validation/ nor val/{there}"
    if {"validation", "val"} & set(folders):
        return f"holds validation images, and no train/{there}"
    classes = [
        name for name in folders if any(Path(file).suffix.lower() in IMAGE_SUFFIXES for file in _names(source / name))
    ]
    if classes:
        return (
            f"holds {len(classes)} folders of images ({classes[0]}), which are not split into training and validation"
        )
    return None


def _files(names: Sequence[str]) -> str | None:
    images = [name for name in names if Path(name).suffix.lower() in IMAGE_SUFFIXES]
    if images:
        return f"holds {len(images)} images ({images[0]}) without folders of classes"
    for name in names:
        words = _BY_SUFFIX.get(Path(name).suffix.lower())
        if words:
            return f"holds {words} ({name})"
    return None
