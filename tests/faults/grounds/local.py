"""Replicas as processes of this machine, without a manager."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.faults.grounds.contract import Place


class Local:
    """The launcher `local`."""

    pace = 4.0

    def missing(self) -> str:
        return ""

    @contextmanager
    def open(self, folder: Path) -> Iterator[Place]:
        yield Place()


LOCAL = Local()
