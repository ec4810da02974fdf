"""The contract of grounds: launchers and managers under which runs are attacked."""

import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

WIDE_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def missing_programs(*names: str) -> str:
    """The programs of these that this machine lacks, as text."""
    return ", ".join(name for name in names if shutil.which(name, path=WIDE_PATH) is None)


def nothing() -> list[str]:
    return []


@dataclass(frozen=True)
class Place:
    """An open ground."""

    words: tuple[str, ...] = ()
    """Options of `aiperf run`."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of `aiperf run` and `aiperf resume`."""
    killed_codes: frozenset[int] = frozenset({-9})
    """Exit codes of the command whose primary is killed."""
    marks: tuple[str, ...] = ()
    """Words in the command lines of processes that do not name the run directory."""
    left: Callable[[], list[str]] = nothing
    """Jobs that a scheduler still has."""


class Ground(Protocol):
    """A launcher or manager on this machine."""

    @property
    def pace(self) -> float:
        """Seconds that one fault takes about, with the recovery."""

    def missing(self) -> str:
        """The programs that this machine lacks for it; empty if it can be used."""

    def open(self, folder: Path) -> AbstractContextManager[Place]:
        """Start what it needs in a new folder, and end all of it."""
