"""The files of a trial before it begins, and the checkpoints that it takes over."""

import contextlib
from pathlib import Path

from aiperf.files import move, remove
from aiperf.run_directory.paths import RunPaths
from aiperf.wire.messages import Job


def take_over(paths: RunPaths, name: str, job: Job, *others: Path) -> Path:
    """Free the paths of a trial's checkpoints and other files; give the path of its checkpoint.

    Checkpoints of the trial that it resumes are moved there. `name` is the architecture's hash.
    Raises OSError.
    """
    checkpoints = paths.checkpoints_of(name, job.trial)
    for file in (*checkpoints, *others):
        # A file that is there already is not this trial's: trial ids are issued once.
        remove(file)
    if job.resumes is not None:
        for before, now in zip(paths.checkpoints_of(name, job.resumes), checkpoints, strict=True):
            with contextlib.suppress(FileNotFoundError):
                move(before, now)
    return checkpoints[0]


def forget(paths: RunPaths, name: str, trial: int) -> None:
    """Remove the checkpoints of a trial that has ended. Raises OSError."""
    for file in paths.checkpoints_of(name, trial):
        remove(file)
