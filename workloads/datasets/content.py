"""Contents of files of images, and the description that is written of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from aiperf.config.dataset_manifest import (
    SPLITS,
    DatasetManifest,
    FileEntry,
    Split,
    SplitEntry,
    write_dataset_manifest,
)
from aiperf.config.fingerprints import entries_name, overall_fingerprint, sorted_entries
from aiperf.files import write_atomically


@dataclass(frozen=True, slots=True)
class FileContent:
    """A file of images, or the index of a folder of them."""

    entry: FileEntry
    images: bytes
    """Entries of its images in their order (`aiperf.config.fingerprints`)."""
    names: tuple[str, ...] = ()
    """Names of the images, if they are files of their own."""

    def name_of(self, number: int) -> str:
        """The place of an image, in words."""
        return self.names[number] if self.names else f"{self.entry.name}, image {number}"


Contents = Mapping[Split, Sequence[FileContent]]
"""Files of each split, in order."""


@dataclass(frozen=True, slots=True)
class About:
    """The facts of a data set that do not follow from its files."""

    source: str
    image_size: int
    class_names: tuple[str, ...]


def write_description(
    data_dir: Path, form: Literal["tfrecord", "folder"], about: About, contents: Contents
) -> DatasetManifest:
    """Write the entries of each split, then dataset.json. Raises OSError."""
    splits: dict[Split, SplitEntry] = {}
    for split in SPLITS:
        entries = sorted_entries(content.images for content in contents[split])
        write_atomically(data_dir / entries_name(split), entries)
        files = tuple(content.entry for content in contents[split])
        splits[split] = SplitEntry(files=files, fingerprint=hashlib.sha256(entries).hexdigest())
    train, validation = splits["train"], splits["validation"]
    manifest = DatasetManifest(
        format=form,
        source=about.source,
        image_size=about.image_size,
        class_names=about.class_names,
        train=train,
        validation=validation,
        fingerprint=overall_fingerprint(train.fingerprint, validation.fingerprint),
    )
    # Last: a directory without dataset.json is unfinished, whatever else is in it.
    write_dataset_manifest(data_dir, manifest)
    return manifest
