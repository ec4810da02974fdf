"""`dataset.json`: what a directory of images holds.

Written by `aiperf dataset`, read by every trainer.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from aiperf.config.fingerprints import overall_fingerprint
from aiperf.errors import DatasetError
from aiperf.files import write_atomically

MANIFEST_NAME = "dataset.json"

Split = Literal["train", "validation"]
SPLITS: tuple[Split, ...] = ("train", "validation")

_HEXADECIMAL = "^[0-9a-f]{64}$"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FileEntry(_Part):
    """One file of a split: a shard of TFRecords, or the index of a split of an image folder."""

    name: str
    images: int = Field(ge=0)
    size_bytes: int = Field(ge=0)
    sha256: str


class SplitEntry(_Part):
    """The images of one split."""

    files: tuple[FileEntry, ...]
    fingerprint: str | None = Field(default=None, pattern=_HEXADECIMAL)
    """Of its images and labels (`aiperf.config.fingerprints`); None: unknown."""

    @property
    def images(self) -> int:
        """Number of images."""
        return sum(file.images for file in self.files)


class DatasetManifest(_Part):
    """Everything that is known of a directory of images. Label i (from 1) is class_names[i - 1]."""

    schema_version: Literal[1] = 1
    format: Literal["tfrecord", "folder"]
    source: str
    image_size: int = Field(ge=8, le=4096)
    """Side of the square crop that is trained, in pixels."""
    class_names: tuple[str, ...] = Field(min_length=2)
    train: SplitEntry
    validation: SplitEntry
    fingerprint: str | None = Field(default=None, pattern=_HEXADECIMAL)
    """Of both splits; None: unknown."""

    @model_validator(mode="after")
    def _is_that_of_the_splits(self) -> Self:
        if self.fingerprint != overall_fingerprint(self.train.fingerprint, self.validation.fingerprint):
            raise ValueError("its fingerprint is not that of its splits")
        return self

    def split(self, name: Split) -> SplitEntry:
        """One of the two splits."""
        return self.train if name == "train" else self.validation


def read_dataset_manifest(data_dir: Path) -> DatasetManifest:
    """Read dataset.json.

    Raises DatasetError naming what is missing and the command that makes it.
    """
    path = data_dir / MANIFEST_NAME
    try:
        stamp = path.stat()
    except OSError as error:
        raise DatasetError(
            f"{path}: {error.strerror}; make it with `aiperf dataset prepare`, or for existing files with "
            f"`aiperf dataset check {data_dir} --write-manifest`"
        ) from None
    return _read(path, stamp.st_mtime_ns, stamp.st_size)


@lru_cache(maxsize=8)
def _read(path: Path, modified_ns: int, size: int) -> DatasetManifest:
    try:
        return DatasetManifest.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise DatasetError(f"{path}: is not a description of a data set: {error}") from None


def write_dataset_manifest(data_dir: Path, manifest: DatasetManifest) -> None:
    """Write dataset.json, whole or not at all. Raises OSError."""
    write_atomically(data_dir / MANIFEST_NAME, manifest.model_dump_json(indent=1).encode() + b"\n")
