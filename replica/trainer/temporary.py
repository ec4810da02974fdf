"""Temporary files of ranks, each in a folder named after the socket of its training.

TensorFlow writes dozens of files for an input pipeline. It removes them at an orderly exit of the
interpreter, for which ranks do not wait.
"""

import os
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


COMPILER_FOLDERS = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "JAX_COMPILATION_CACHE_DIR": "jax"}
"""Variables of compilers with the folder that they keep programs in, and its name in ours."""


@contextmanager
def kept_programs(wanted: bool) -> Iterator[dict[str, str]]:
    """Run a block with a folder of this node for the programs that compilers make.

    Gives the variables for the ranks. A trial's network has most of its parts from another one's:
    compiled anew for each trial, they would take minutes. Compilers run what they find there, so
    that nobody else may write it. Variables that are set already stay.
    """
    names = [name for name in COMPILER_FOLDERS if name not in os.environ] if wanted else []
    if not names:
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="aiperf-programs-", ignore_cleanup_errors=True) as folder:
        yield {name: f"{folder}/{COMPILER_FOLDERS[name]}" for name in names}
