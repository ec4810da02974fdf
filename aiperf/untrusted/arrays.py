"""Arrays in a `.npz` file that somebody else may have made: weights and checkpoints of a run."""

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from aiperf.storage.patience import with_patience


@contextmanager
def opened_arrays(file: Path) -> Iterator[NpzFile]:
    """Open a file for its arrays, each of which is read when it is asked for.

    No array takes more memory than the file has bytes. Raises ValueError if members are compressed
    or overlap, which no file of AIPerf does, and what NumPy and zipfile raise for other damage.
    """
    # Opened here: np.load leaves a file open that is no archive.
    with file.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
        members = archive.zip.infolist()
        # Compressed zeros take a thousand times as much memory as the file. Several entries may
        # share the bytes of one member, which only later versions of zipfile refuse.
        if any(member.compress_type != zipfile.ZIP_STORED for member in members):
            raise ValueError("its arrays are compressed, which those of AIPerf never are")
        if sum(member.file_size for member in members) > file.stat().st_size:
            raise ValueError("its arrays are larger than the file")
        yield archive


def read_arrays(file: Path, *names: str) -> dict[str, NDArray[Any]]:
    """Read the arrays of these names that a file has, or all of them, sorted by name.

    Storage that refuses for a while is waited for, by the policy of this process. Raises as
    `opened_arrays`.
    """

    def read() -> dict[str, NDArray[Any]]:
        with opened_arrays(file) as archive:
            return {name: archive[name] for name in sorted(archive.files) if name in names or not names}

    return with_patience(read, file)
