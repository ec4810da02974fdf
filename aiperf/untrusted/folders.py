"""Folders from other people: walked without recursion, so that no depth can stop it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

DEEPEST = 100
"""Folders inside each other that are looked into."""


def files_below(folder: Path) -> Iterator[str]:
    """The paths of all files below a folder, relative to it; links to folders are files.

    Raises OSError if a folder cannot be read. Of one that is too deep only its own path is given.
    """
    waiting = [("", 0)]
    while waiting:
        inside, depth = waiting.pop()
        with os.scandir(folder / inside) as entries:
            for entry in entries:
                name = f"{inside}/{entry.name}" if inside else entry.name
                if entry.is_dir(follow_symlinks=False) and depth < DEEPEST:
                    waiting.append((name, depth + 1))
                else:
                    yield name
