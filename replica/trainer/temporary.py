"""Temporary files of ranks: in a folder for each, found by the name of the training's socket.

TensorFlow writes dozens of files per training and removes them at an orderly exit of the interpreter, which ranks do
not wait for.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def temporary_files_of_its_own(channel: str) -> Iterator[None]:
    """Let this rank have a folder for temporary files, which is removed at the end."""
    with tempfile.TemporaryDirectory(prefix=f"{channel}-", ignore_cleanup_errors=True) as folder:
        tempfile.tempdir = folder
        yield


def remove_temporary_files(channel: str) -> None:
    """Remove the folders of ranks on this node that could not do it themselves: they were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{channel}-*"):
        shutil.rmtree(folder, ignore_errors=True)
