"""Check of a whole run directory: everything damaged, missing or foreign, all at once."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from aiperf.run_directory.paths import RunPaths, belongs
from analysis.reading.run_data import read_run

TEMPORARY = re.compile(r"(.*/)?\.[^/]+\.(tmp|part)")


def verify(paths: RunPaths) -> list[str]:
    """All problems, one line each. Raises RunDirectoryError if it is not a run at all."""
    data = read_run(paths)
    return [
        *map(str, data.damages),
        *(f"{name}: ends in an unfinished line" for name in data.unfinished_lines),
        *_archives(paths),
        *_foreign(paths),
    ]


def _archives(paths: RunPaths) -> Iterator[str]:
    for file in sorted(paths.models.glob("*/*.npz")):
        try:
            with np.load(file, allow_pickle=False) as archive:
                for name in archive.files:
                    archive[name]
        except (OSError, ValueError, EOFError, zipfile.BadZipFile, KeyError) as error:
            if not _is_simulated(file):
                yield f"{_relative(paths, file)}: cannot be read: {error}"


def _is_simulated(file: Path) -> bool:
    """The simulated trainer's checkpoints are lists of accuracies."""
    try:
        return isinstance(json.loads(file.read_bytes()), list)
    except ValueError:
        return False


def _foreign(paths: RunPaths) -> Iterator[str]:
    for file in sorted(paths.root.rglob("*")):
        name = _relative(paths, file)
        if file.is_dir():
            continue
        if TEMPORARY.fullmatch(name):
            yield f"{name}: a temporary file left behind"
        elif not belongs(name):
            yield f"{name}: does not belong to the run"


def _relative(paths: RunPaths, file: Path) -> str:
    return str(file.relative_to(paths.root))
