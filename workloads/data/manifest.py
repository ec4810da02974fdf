"""`dataset.json` of a directory of scientific data: the contents of its files.

It has the name and the structure of that of images (`aiperf.config.dataset_manifest`); the two
differ in `format`. Layouts of files are compared with it without a look at their samples.
"""

import hashlib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from aiperf.config.dataset_manifest import MANIFEST_NAME, MOST_IMAGES, SPLITS, Split
from aiperf.config.fingerprints import overall_fingerprint
from aiperf.errors import DatasetError
from aiperf.files import write_atomically
from aiperf.untrusted.reading import MIB, Limits, json_object, read_outside
from workloads.data.arrays import ENTRY_BYTES
from workloads.data.formats import FORMATS

_HEXADECIMAL = "^[0-9a-f]{64}$"

_LIMITS = Limits(size=256 * MIB)
"""Limits of a description: CosmoFlow's 589,824 files of one sample take 120 MB."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ScienceFile(_Part):
    """One file of a split."""

    name: str = Field(pattern=r"^([^/\x00-\x1f]{1,255}/)?[^/\x00-\x1f]{1,255}$")
    """Name in the directory, or in a folder of it."""
    images: int = Field(ge=1, le=MOST_IMAGES)
    """Number of its samples."""
    size_bytes: int = Field(ge=0, le=1 << 60)
    sha256: str = Field(pattern=_HEXADECIMAL)

    @model_validator(mode="after")
    def _is_inside(self) -> Self:
        if ".." in PurePosixPath(self.name).parts:
            raise ValueError(f"{self.name!r} is not a file of the directory")
        return self


class ScienceSplit(_Part):
    """The samples of one split."""

    files: tuple[ScienceFile, ...] = Field(min_length=1)
    fingerprint: str = Field(pattern=_HEXADECIMAL)
    """SHA-256 of the sorted entries of all samples (`workloads.data.arrays.entries_of`)."""

    @property
    def images(self) -> int:
        """Number of samples."""
        return sum(file.images for file in self.files)


class Channel(_Part):
    """Statistics of an input channel over the training split, in the unit of the files."""

    name: str
    mean: float
    std: float = Field(ge=0)
    log_mean: float | None = None
    log_std: float | None = Field(default=None, ge=0)
    """Standard deviation of log(1 + x), as `log_mean` is its mean; None unless counts."""


class Generated(_Part):
    """The origin of generated samples."""

    name: str
    """Name of the generator (`workloads.data.generators`)."""
    version: int
    seed: int


class ScienceManifest(_Part):
    """The description of a directory of scientific data."""

    schema_version: Literal[1] = 1
    format: Literal["hep-64", "hep-224", "ewa", "cosmoflow", "cosmoflow-tfrecord"]
    source: str
    generated: Generated | None = None
    """Origin of generated samples; None for real data."""
    grid: tuple[int, ...] = Field(min_length=2, max_length=3)
    """Grid of the inputs, without channels."""
    channels: tuple[Channel, ...] = Field(min_length=1, max_length=64)
    train: ScienceSplit
    validation: ScienceSplit
    test: ScienceSplit | None = None
    """Samples that are evaluated once, at the end of a training; None: there are none."""
    fingerprint: str = Field(pattern=_HEXADECIMAL)

    @model_validator(mode="after")
    def _is_that_of_the_splits(self) -> Self:
        if self.fingerprint != overall_fingerprint(*(self.split(split).fingerprint for split in self.splits)):
            raise ValueError("its fingerprint is not that of its splits")
        # Sizes come from outside, and arrays are made by them.
        if not all(0 < size <= 1 << 14 for size in self.grid):
            raise ValueError(f"the grid {self.grid} is not possible")
        return self

    @property
    def splits(self) -> tuple[Split, ...]:
        """The splits that it has: training, validation, and often a test split."""
        return SPLITS if self.test is None else (*SPLITS, "test")

    def split(self, name: Split) -> ScienceSplit:
        """Give one of `splits`."""
        found = {"train": self.train, "validation": self.validation, "test": self.test}[name]
        assert found is not None, f"a data set without a {name} split"
        return found


def fingerprint_of(entries: Iterable[bytes]) -> str:
    """The fingerprint of a split from the entries of its files."""
    cut = (part[start : start + ENTRY_BYTES] for part in entries for start in range(0, len(part), ENTRY_BYTES))
    return hashlib.sha256(b"".join(sorted(cut))).hexdigest()


def is_science(data_dir: Path) -> bool:
    """True if dataset.json describes scientific data, even if badly; False if there is none."""
    return described_format(data_dir) in FORMAT_NAMES


def described_format(data_dir: Path) -> str | None:
    """The format that dataset.json names; None if there is no such file, or if it names none."""
    if not (data_dir / MANIFEST_NAME).is_file():
        return None
    try:
        document = read_outside(data_dir / MANIFEST_NAME, json_object, _LIMITS, DatasetError)
    except DatasetError:
        return None
    form = document.get("format")
    return form if isinstance(form, str) else None


def read_science_manifest(data_dir: Path) -> ScienceManifest:
    """Read dataset.json. Raises DatasetError naming what is missing and the command to make it."""
    path = data_dir / MANIFEST_NAME
    try:
        stamp = path.stat()
    except OSError as error:
        raise DatasetError(
            f"{path}: {error.strerror}; make it with `aiperf dataset check {data_dir} --write-manifest`, or generated "
            "data with `aiperf dataset synthesize hep|ewa|cos|cos-fields`"
        ) from None
    # Cached by time and size: a description may have 120 MB, and is asked for by several readers.
    return _read(path, stamp.st_mtime_ns, stamp.st_size)


@lru_cache(maxsize=8)
def _read(path: Path, modified_ns: int, size: int) -> ScienceManifest:
    return read_outside(
        path, ScienceManifest.model_validate_json, _LIMITS, DatasetError, "a description of scientific data"
    )


def write_science_manifest(data_dir: Path, manifest: ScienceManifest) -> None:
    """Write dataset.json, whole or not at all. Raises OSError."""
    # A set without a test split is described as earlier versions describe it, and read it.
    left_out = {"test"} if manifest.test is None else None
    write_atomically(data_dir / MANIFEST_NAME, manifest.model_dump_json(indent=1, exclude=left_out).encode() + b"\n")


def file_problems(data_dir: Path, manifest: ScienceManifest) -> list[str]:
    """Lines about files that are missing, or that have another size, without a look into them."""
    problems = []
    for file in (file for split in manifest.splits for file in manifest.split(split).files):
        try:
            size = (data_dir / file.name).stat().st_size
        except OSError as error:
            problems.append(f"{file.name}: {error.strerror}")
            continue
        if size != file.size_bytes:
            problems.append(f"{file.name}: has {size:,} bytes, not {file.size_bytes:,}")
    return problems


FORMAT_NAMES: tuple[str, ...] = ("hep-64", "hep-224", "ewa", "cosmoflow", "cosmoflow-tfrecord")


def layout_problems(folder: Path, manifest: ScienceManifest) -> Iterator[str]:
    """Open every file; yield those that cannot be opened, or hold other samples than described."""
    form = FORMATS.load(manifest.format)
    for file in (file for split in manifest.splits for file in manifest.split(split).files):
        try:
            opened = form.open(folder / file.name)
        except DatasetError as error:
            yield from error.lines
            continue
        if (opened.layout.samples, opened.layout.grid) != (file.images, manifest.grid):
            yield f"{folder / file.name}: holds other samples than {MANIFEST_NAME} says"
        opened.close()
