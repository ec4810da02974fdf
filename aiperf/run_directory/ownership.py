"""Hands that a run directory may have been in: other owners, and others who may write."""

import os
import pwd
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path

from aiperf.errors import RunDirectoryError

OTHERS = stat.S_IWGRP | stat.S_IWOTH


def foreign_hands(folder: Path) -> list[str]:
    """Reasons why others may have written in a folder, at most one of each kind, with a remedy.

    Files that vanish meanwhile do not count.
    """
    foreign, writable = list[Path](), list[Path]()
    for path, state in _states(folder):
        if state.st_uid != os.geteuid():
            foreign.append(path)
        elif not stat.S_ISLNK(state.st_mode) and state.st_mode & OTHERS:  # links show no rights of their own
            writable.append(path)
    problems = []
    if foreign:
        problems.append(f"{_such_as(foreign)} belongs to {_owner(foreign[0])}, not to you; use a folder of your own")
    if writable:
        problems.append(
            f"{_such_as(writable)} can be written by other users; "
            f"check that nobody did, then type: chmod -R go-w {shlex.quote(str(folder))}"
        )
    return problems


def check_hands(folder: Path) -> None:
    """Raise RunDirectoryError if others may have written in a folder whose files start programs."""
    if problems := foreign_hands(folder):
        raise RunDirectoryError(f"{folder} can start programs as you: {'; '.join(problems)}")


def _states(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    yield folder, folder.stat()
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(place, name)
            try:
                yield path, path.lstat()
            except FileNotFoundError:
                continue


def _such_as(paths: list[Path]) -> str:
    return f"{paths[0]}" + (f" (and {len(paths) - 1} more)" if len(paths) > 1 else "")


def _owner(path: Path) -> str:
    user = path.lstat().st_uid
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"
