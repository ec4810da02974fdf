"""Files of arrays that somebody else made."""

import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from aiperf.untrusted.arrays import opened_arrays

ZEROS = np.zeros(1_000_000, np.float32)


def compressed(file: Path) -> None:
    np.savez_compressed(file, kernel=ZEROS)


def overlapping(file: Path) -> None:
    """Ten entries for the bytes of one member, and a new member, so that they are written."""
    np.savez(file, kernel=ZEROS)
    with zipfile.ZipFile(file, "a") as archive:
        first = archive.infolist()[0]
        archive.filelist += [first] * 9
        archive.writestr("bias.npy", b"")


def test_arrays_are_read_as_they_were_written(tmp_path: Path) -> None:
    np.savez(tmp_path / "weights.npz", kernel=ZEROS, bias=np.ones(3))
    with opened_arrays(tmp_path / "weights.npz") as archive:
        assert sorted(archive.files) == ["bias", "kernel"] and archive["bias"].tolist() == [1, 1, 1]


@pytest.mark.parametrize(("make", "reason"), [(compressed, "are compressed"), (overlapping, "larger than the file")])
def test_arrays_that_take_more_memory_than_the_file_are_refused(
    make: Callable[[Path], None], reason: str, tmp_path: Path
) -> None:
    make(tmp_path / "weights.npz")
    with pytest.raises(ValueError, match=reason), opened_arrays(tmp_path / "weights.npz"):
        pass
