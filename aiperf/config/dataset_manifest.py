"""`dataset.json`: what a directory of images holds.

Written by `aiperf dataset`, read by every trainer.
"""

from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from aiperf.config.fingerprints import overall_fingerprint
from aiperf.errors import DatasetError
from aiperf.files import write_atomically
from aiperf.storage.patience import with_patience
from aiperf.untrusted.reading import MIB, Limits, read_outside

MANIFEST_NAME = "dataset.json"

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation")
"""The splits that every data set has; scientific data may have a test split, too."""

_HEXADECIMAL = "^[0-9a-f]{64}$"


MOST_IMAGES = 10**12
MOST_CLASSES = 10**6

INDEX_LIMITS = Limits(size=1024 * MIB, depth=1 << 30)
"""Limits for a list of images."""

_LIMITS = Limits(size=256 * MIB)


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FileEntry(_Part):
    """One file of a split: a shard of TFRecords, or the index of a split of an image folder."""

    name: str = Field(pattern=r"^[^/\x00-\x1f]{1,255}$")
    images: int = Field(ge=0, le=MOST_IMAGES)
    size_bytes: int = Field(ge=0, le=1 << 60)
    sha256: str = Field(max_length=64)


class SplitEntry(_Part):
    """The images of one split."""

    files: tuple[FileEntry, ...]
    fingerprint: str | None = Field(default=None, pattern=_HEXADECIMAL)
    """Fingerprint of its images and labels (`aiperf.config.fingerprints`); None: unknown."""

    @property
    def images(self) -> int:
        """Number of images."""
        return sum(file.images for file in self.files)


class DatasetManifest(_Part):
    """Description of a directory of images. Label i (from 1) is class_names[i - 1]."""

    schema_version: Literal[1] = 1
    format: Literal["tfrecord", "folder"]
    source: str
    image_size: int = Field(ge=8, le=4096)
    """Side of the square crop that is trained, in pixels."""
    class_names: tuple[str, ...] = Field(min_length=2, max_length=MOST_CLASSES)
    train: SplitEntry
    validation: SplitEntry
    fingerprint: str | None = Field(default=None, pattern=_HEXADECIMAL)
    """Fingerprint of both splits; None: unknown."""

    @model_validator(mode="after")
    def _is_that_of_the_splits(self) -> Self:
        if self.fingerprint != overall_fingerprint(self.train.fingerprint, self.validation.fingerprint):
            raise ValueError("its fingerprint is not that of its splits")
        if self.format == "folder" and {len(self.train.files), len(self.validation.files)} != {1}:
            raise ValueError("a folder has one index for each split")
        return self

    def split(self, name: Split) -> SplitEntry:
        """Select one of the two splits."""
        return self.train if name == "train" else self.validation


def read_dataset_manifest(data_dir: Path) -> DatasetManifest:
    """Read dataset.json.

    Raises DatasetError naming what is missing and the command that makes it.
    """
    path = data_dir / MANIFEST_NAME
    try:
        stamp = with_patience(path.stat, path)
    except OSError as error:
        raise DatasetError(
            f"{path}: {error.strerror}; make it with `aiperf dataset prepare`, or for existing files with "
            f"`aiperf dataset check {data_dir} --write-manifest`"
        ) from None
    # By time and size: what was written anew is read anew, and all else once.
    return _read(path, stamp.st_mtime_ns, stamp.st_size)


@lru_cache(maxsize=8)
def _read(path: Path, modified_ns: int, size: int) -> DatasetManifest:
    return read_outside(path, DatasetManifest.model_validate_json, _LIMITS, DatasetError, "a description of a data set")


def read_index(data_dir: Path, manifest: DatasetManifest, split: Split) -> list[tuple[str, int]]:
    """The images that the index of a split lists: paths below the directory, and labels from 1.

    Raises DatasetError if it is not such a list.
    """
    classes = len(manifest.class_names)

    def row(line: str) -> tuple[str, int]:
        name, label = line.split("\t")
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts or "\0" in name:
            raise ValueError(f"{name!r} is not a file below the directory")
        if not 1 <= int(label) <= classes:
            raise ValueError(f"{label!r} is not one of {classes} classes")
        return name, int(label)

    def parse(data: bytes) -> list[tuple[str, int]]:
        return [row(line) for line in data.decode().splitlines()]

    path = data_dir / manifest.split(split).files[0].name
    return read_outside(path, parse, INDEX_LIMITS, DatasetError, "an index of images")


def write_dataset_manifest(data_dir: Path, manifest: DatasetManifest) -> None:
    """Write dataset.json, whole or not at all. Raises OSError."""
    write_atomically(data_dir / MANIFEST_NAME, manifest.model_dump_json(indent=1).encode() + b"\n")
