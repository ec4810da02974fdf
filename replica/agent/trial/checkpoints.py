"""The files of a trial before it begins, and the checkpoints that it takes over."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

from aiperf.files import move, remove
from aiperf.run_directory.paths import RunPaths


def take_over(paths: RunPaths, name: str, trial: int, earlier: Sequence[int], *others: Path) -> Path:
    """Free the paths of a trial's checkpoints and other files; give the path of its checkpoint.

    The newest checkpoints of the trials that it resumes, `earlier`, latest first, are moved there.
    `name` is the architecture's hash. Raises OSError.
    """
    checkpoints = paths.checkpoints_of(name, trial)
    for file in (*checkpoints, *others):
        # A file that is there already is not this trial's: trial ids are issued once.
        remove(file)
    # A trial that was lost before it took over has left them where they were, or one of the two.
    for before in (paths.checkpoints_of(name, number) for number in reversed(earlier)):
        for old, now in zip(before, checkpoints, strict=True):
            with contextlib.suppress(FileNotFoundError):
                move(old, now)
    return checkpoints[0]


def forget(paths: RunPaths, name: str, trial: int) -> None:
    """Remove the checkpoints of a trial that has ended. Raises OSError."""
    for file in paths.checkpoints_of(name, trial):
        remove(file)
