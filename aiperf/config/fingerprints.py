"""Fingerprints of sets of images, by the images and their labels, and those that are registered.

Neither the order of the images nor their files matter. An image's entry is the SHA-256 of its
encoded bytes (32 bytes) and its label (4 bytes, big-endian, unsigned, counted from 1). A split's
fingerprint is the SHA-256 of the entries of all its images, sorted and concatenated. The data set's
is the SHA-256 of the fingerprints of training and validation, and of a test split if there is one
(32 bytes each). All are written in hexadecimal. Data sets must have their registered fingerprints,
which sites computed.
"""

import datetime
import hashlib
import mmap
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, overload

from pydantic import BaseModel, ConfigDict, Field

from aiperf.config.toml_text import parse_toml

DIGEST_BYTES, LABEL_BYTES = 32, 4
ENTRY_BYTES = DIGEST_BYTES + LABEL_BYTES


def image_entry(encoded: bytes, label: int) -> bytes:
    """The entry of an image: 36 bytes. A label that 4 bytes cannot hold loses its upper bits."""
    return hashlib.sha256(encoded).digest() + (label % (1 << 8 * LABEL_BYTES)).to_bytes(LABEL_BYTES)


def cut(entries: bytes) -> list[bytes]:
    """The entries of a file of images, one by one."""
    return [entries[start : start + ENTRY_BYTES] for start in range(0, len(entries), ENTRY_BYTES)]


def sorted_entries(files: Iterable[bytes]) -> bytes:
    """The entries of a split, sorted and concatenated; the SHA-256 of them is its fingerprint."""
    return b"".join(sorted(entry for entries in files for entry in cut(entries)))


def overall_fingerprint(train: str | None, validation: str | None, *test: str) -> str | None:
    """The fingerprint of a data set; None if that of a split is unknown."""
    if train is None or validation is None:
        return None
    return hashlib.sha256(bytes.fromhex("".join((train, validation, *test)))).hexdigest()


def entries_name(split: str) -> str:
    """The name of the file, next to dataset.json, of a split's sorted entries."""
    return f"fingerprints-{split}.bin"


class SortedEntries(Sequence[bytes]):
    """The sorted entries of a split, mapped from their file."""

    def __init__(self, path: Path) -> None:
        """Map the file. Raises OSError, or ValueError if it is empty or ends within an entry."""
        with path.open("rb") as stream:
            self._data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        if len(self._data) % ENTRY_BYTES:
            raise ValueError(f"{path}: ends within an entry")

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the split that the file holds, from its content."""
        return hashlib.sha256(self._data).hexdigest()

    def count(self, value: bytes) -> int:
        """The number of images with this entry, by binary search."""
        return bisect_right(self, value) - bisect_left(self, value)

    def has_image(self, entry: bytes) -> bool:
        """True if an entry's image is here, whatever its label."""
        digest = entry[:DIGEST_BYTES]
        # A digest alone sorts in front of the entries that begin with it.
        place = bisect_left(self, digest)
        return place < len(self) and self[place].startswith(digest)

    def close(self) -> None:
        """Unmap the file."""
        self._data.close()

    def __len__(self) -> int:
        return len(self._data) // ENTRY_BYTES

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self._data[index * ENTRY_BYTES : (index + 1) * ENTRY_BYTES]


LEAST_SITES = 2
"""Sites whose equal values register a fingerprint."""

Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
"""A SHA-256 in hexadecimal."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SiteEntry(_Part):
    """The values that one site computed from its own copy of a data set."""

    site: str = Field(min_length=1)
    date: datetime.date
    software: str = Field(min_length=1)
    train: Digest
    """Fingerprint of the training split."""
    validation: Digest
    archives: Mapping[str, Digest] = Field(min_length=1)
    """SHA-256 of the files that the data set was prepared from, by name."""


class Entry(_Part):
    """A data set: its fingerprint if it comes with the software, else the entries of sites."""

    fingerprint: Digest | None = None
    sites: tuple[SiteEntry, ...] = ()

    @property
    def registered(self) -> str | None:
        """The fingerprint that the data set must have; None as long as there is none.

        Sites register it if two or more have computed it, and no site another one.
        """
        if self.fingerprint is not None:
            return self.fingerprint
        names = {entry.site.casefold().strip() for entry in self.sites}
        values = {overall_fingerprint(entry.train, entry.validation) for entry in self.sites}
        return values.pop() if len(names) >= LEAST_SITES and len(values) == 1 else None


def registered_in(document: Mapping[str, Any]) -> dict[str, str]:
    """The registered fingerprints of a registry, by name of the data set.

    Raises ValueError if it is not one.
    """
    found = {name: Entry.model_validate(entry).registered for name, entry in document.items()}
    return {name: value for name, value in found.items() if value is not None}


def registered_fingerprints() -> dict[str, str]:
    """Those of the registry that comes with the software."""
    return registered_in(parse_toml(resources.files("aiperf.config").joinpath("fingerprints.toml").read_text("utf-8")))
