"""Folders for temporary files of agents and ranks; what killed ones leave, the next one removes.

TensorFlow writes dozens of files for an input pipeline. It removes them at an orderly exit of the
interpreter, for which ranks do not wait.
"""

import fcntl
import glob
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from aiperf.files import remove_folder
from aiperf.host import this_host

# Anybody may put links with such names into the folder for temporary files: they are not followed.
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def _prefix() -> str:
    # Nodes may share the folder, and not know of each other's locks.
    return f"aiperf-{this_host().name()}+"


@contextmanager
def own_folder() -> Iterator[Path]:
    """A folder of this process, locked as long as the process lives, and removed at the end."""
    remove_left_folders()
    folder, lock = _locked_folder()
    try:
        yield folder
    finally:
        remove_folder(folder)
        os.close(lock)


def _locked_folder() -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_prefix()))
        with suppress(FileNotFoundError):
            lock = os.open(folder, _FLAGS)
            with suppress(OSError):  # a file system without locks, where nobody removes it either
                fcntl.flock(lock, fcntl.LOCK_SH)
            if folder.exists():
                return folder, lock
            os.close(lock)
        # Somebody took it for a left one, since it had no lock yet.


def remove_left_folders() -> None:
    """Remove the folders on this node of this user's processes that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{glob.escape(_prefix())}*"):
        with suppress(OSError):
            lock = os.open(folder, _FLAGS)
            try:
                if os.fstat(lock).st_uid == os.getuid():
                    # Refused while the folder's own process lives: the kernel drops that lock at
                    # its death, however it dies.
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    remove_folder(folder)
            finally:
                os.close(lock)


@contextmanager
def temporary_files_of_its_own() -> Iterator[None]:
    """Run a block with a folder for this rank's temporary files, which is removed at the end."""
    with own_folder() as folder:
        tempfile.tempdir = str(folder)
        yield


COMPILER_FOLDERS = {
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "JAX_COMPILATION_CACHE_DIR": "jax",
    # AMD's, which is in the home folder otherwise: its databases lock files, often over NFS.
    "MIOPEN_USER_DB_PATH": "miopen",
    "MIOPEN_CUSTOM_CACHE_DIR": "miopen",
}
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
    with own_folder() as folder:
        yield {name: f"{folder}/{COMPILER_FOLDERS[name]}" for name in names}
