"""Runs that NNI drives, with replicas of this machine."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from tests.faults.grounds.contract import Place
from tests.support.hand_made import free_port


class Nni:
    """The manager `nni`."""

    pace = 15.0

    def missing(self) -> str:
        return "" if find_spec("nni") else "nni"

    @contextmanager
    def open(self, folder: Path) -> Iterator[Place]:
        folder.mkdir()
        own = ("--set", f"nni.directory={folder / 'experiments'}")
        words = ("--manager", "nni", "--set", f"nni.port={free_port()}", *own)
        # `aiperf run` outlives the primary, which is NNI's child, and says how to resume.
        # Of the manager; the folder has one run at a time.
        marks = (f"--experiments-directory {folder / 'experiments'}",)
        yield Place(words, {"HOME": str(folder)}, frozenset({-9, 1}), marks)


NNI = Nni()
