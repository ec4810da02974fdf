"""The runs of a dashboard: a table from directories that its user names, by ids without paths."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from aiperf.errors import RunDirectoryError
from aiperf.run_directory.paths import RunPaths


def run_id(root: Path) -> str:
    """The name of a run in addresses: the same for every dashboard, and no path."""
    return hashlib.sha256(str(root.absolute()).encode(errors="surrogateescape")).hexdigest()[:12]


class Runs:
    """The runs in and directly below some directories.

    Raises RunDirectoryError if one of them is not a directory.
    """

    def __init__(self, directories: Sequence[Path]) -> None:
        for directory in directories:
            if not directory.is_dir():
                raise RunDirectoryError(
                    f"{directory} is not a directory; name a run, or a directory of runs: aiperf dashboard DIR"
                )
        self._directories = tuple(directories)

    @property
    def single(self) -> str | None:
        """The id of the run if the user named one run and nothing else."""
        only = self._directories[0]
        return run_id(only) if len(self._directories) == 1 and RunPaths(only).run.is_file() else None

    def find(self) -> dict[str, RunPaths]:
        """Find the runs by id, those that were started since included; the newest first."""
        found = {}
        for directory in self._directories:
            for root in (directory, *_folders(directory)):
                try:
                    found[root] = RunPaths(root).run.stat().st_mtime
                except OSError:
                    continue
        return {run_id(root): RunPaths(root) for root in sorted(found, key=lambda root: (-found[root], root))}


def _folders(directory: Path) -> list[Path]:
    """List the folders in a directory; none in a run, whose folders are its own."""
    if RunPaths(directory).run.is_file():
        return []
    try:
        return [path for path in directory.iterdir() if path.is_dir()]
    except OSError:
        return []
