"""Temporary files of ranks, each in a folder named after the socket of its training.

TensorFlow writes dozens of files for an input pipeline. It removes them at an orderly exit of the
interpreter, for which ranks do not wait.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def temporary_files_of_its_own(channel: str) -> Iterator[None]:
    """Run a block with a folder for this rank's temporary files, which is removed at the end."""
    with tempfile.TemporaryDirectory(prefix=f"{channel}-", ignore_cleanup_errors=True) as folder:
        tempfile.tempdir = folder
        yield


def remove_temporary_files(channel: str) -> None:
    """Remove the folders that killed ranks left on this node."""
    for folder in Path(tempfile.gettempdir()).glob(f"{channel}-*"):
        shutil.rmtree(folder, ignore_errors=True)
