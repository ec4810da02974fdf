"""Runs of one configuration with more and more replicas, one after another; resumable."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from aiperf.errors import EXIT_DONE, EXIT_USAGE, RunFailedError, UsageError
from aiperf.files import write_atomically
from aiperf.processes import python_module
from aiperf.records.reading import read_ledger
from aiperf.run_directory.paths import RunPaths, open_run

SERIES = "series.json"


def run_series(folder: Path, counts: Sequence[int], words: Sequence[str], output: TextIO | None = None) -> list[Path]:
    """One run for each number of replicas, in folders `replicas-N`, which are returned.

    `words` are options of `aiperf run`; the runs print to `output`, by default to standard output.
    Finished runs are kept, interrupted ones resume. Raises UsageError if the folder holds a series
    of another configuration, and RunFailedError if a run ends without a result; the work of the
    series up to then is kept.
    """
    _claim(folder, words)
    targets = []
    for count in counts:
        target = folder / f"replicas-{count:04d}"
        command = _command(target, count, words)
        if command is not None:
            code = subprocess.run(python_module("aiperf", *command), check=False, stdout=output).returncode
            if code == EXIT_USAGE and command[0] == "resume":
                raise RunFailedError(
                    f"the run with {count} replicas cannot be resumed; move {target} away, and the same command "
                    "starts it again"
                )
            if code != EXIT_DONE:
                raise RunFailedError(
                    f"the run with {count} replicas ended with exit code {code}; the same command resumes the series"
                )
        targets.append(target)
    return targets


def _claim(folder: Path, words: Sequence[str]) -> None:
    """Note the options of the series, or check that they are the same as before."""
    note = folder / SERIES
    try:
        noted = json.loads(note.read_bytes())["options"]
    except FileNotFoundError:
        write_atomically(note, json.dumps({"options": list(words)}, indent=2).encode() + b"\n")
        return
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{note} is damaged: {error}") from None
    if noted != list(words):
        raise UsageError(
            f"{folder} holds a series with other options: {' '.join(map(str, noted))}; name a new --output"
        )


def _command(target: Path, count: int, words: Sequence[str]) -> list[str] | None:
    """Arguments of `aiperf` for one run; None if it is over."""
    if not RunPaths(target).run.exists():
        return ["run", *words, "--replicas", str(count), "--output", str(target)]
    return None if is_over(target) else ["resume", str(target)]


def is_over(target: Path) -> bool:
    """True if a run has reached its deadline."""
    end = read_ledger(open_run(target)).run_ended
    return end is not None and end.body.reason == "deadline"
