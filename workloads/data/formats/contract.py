"""The contract of a file format of scientific data, and names of files in the data sets' manner.

Files come from other people: nothing is read before its size is known and bounded, and whatever is
wrong becomes a DatasetError or a line of text, never a traceback.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from aiperf.config.dataset_manifest import Split
from workloads.data.arrays import Rows


@dataclass(frozen=True, slots=True)
class FileLayout:
    """The number of samples of a file, and the sizes of their grid without channels."""

    samples: int
    grid: tuple[int, ...]


class OpenFile(Protocol):
    """A file that is open for reading."""

    @property
    def layout(self) -> FileLayout:
        """The number of samples, and their grid."""

    def read(self, start: int, stop: int) -> Rows:
        """Read samples `start` to `stop`. Raises OSError, or ValueError for damaged ones."""

    def problems(self, start: int, rows: Rows) -> Iterator[str]:
        """Yield the problems of values that were read from `start` on, by dataset and index."""

    def close(self) -> None:
        """Close the file."""


class Format(Protocol):
    """One file format."""

    @property
    def name(self) -> str:
        """The format's name in dataset.json."""

    @property
    def science(self) -> str:
        """The kind of the samples (`workloads.data.arrays.Rows`): hep, ewa or cos."""

    @property
    def block(self) -> int:
        """The number of neighbouring samples that are read together."""

    def find(self, folder: Path) -> Mapping[Split, Sequence[str]]:
        """Find the files of each split in a folder, by their usual names, in order."""

    def new_files(self, split: Split, samples: int) -> list[tuple[str, int]]:
        """Names and numbers of samples of new files. Raises UsageError if they are too many."""

    def open(self, path: Path) -> OpenFile:
        """Open a file. Raises DatasetError that lists all problems of its layout."""

    def write(self, path: Path, layout: FileLayout, blocks: Iterable[Rows]) -> None:
        """Write a new file of samples that come in blocks. Raises OSError."""


Found = Mapping[Split, Sequence[str]]


def matching(folder: Path, patterns: Mapping[Split, Sequence[str]]) -> Found:
    """Find the files of a folder that match one of a split's glob patterns, in order."""
    return {
        split: sorted({str(path.relative_to(folder)) for pattern in patterns[split] for path in folder.glob(pattern)})
        for split in patterns
    }


def numbered(stem: str, suffix: str, samples: int, most: int) -> list[tuple[str, int]]:
    """Make names and sizes of files of at most `most` samples: `stem` alone if one is enough."""
    count = max(1, -(-samples // most))
    if count == 1:
        return [(f"{stem}{suffix}", samples)]
    digits = max(2, len(str(count - 1)))
    return [
        (f"{stem}-{number:0{digits}}{suffix}", samples * (number + 1) // count - samples * number // count)
        for number in range(count)
    ]
