"""Runs of one configuration with more and more replicas, one after another; a series that was broken off goes on."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from aiperf.errors import EXIT_DONE, RunFailedError, UsageError
from aiperf.files import write_atomically
from aiperf.history.files import HistoryReader
from aiperf.history.ledger import Ledger
from aiperf.processes import python_module
from aiperf.run_directory.paths import RunPaths, open_run
from analysis.results.source import Result, read_result

SERIES = "series.json"


def run_series(folder: Path, counts: Sequence[int], words: Sequence[str]) -> list[Result]:
    """One run for each number of replicas, in folders `replicas-N`. `words` are options of `aiperf run`.

    A run that is over is kept, one that was broken off is resumed. Raises UsageError where the folder holds a series
    of another configuration, RunFailedError where a run ends without a result (what was done is kept).
    """
    _claim(folder, words)
    results = []
    for count in counts:
        target = folder / f"replicas-{count:04d}"
        command = _command(target, count, words)
        if command is not None:
            code = subprocess.run(python_module("aiperf", *command), check=False).returncode
            if code != EXIT_DONE:
                raise RunFailedError(
                    f"the run with {count} replicas ended with exit code {code}; the same command goes on"
                )
        results.append(read_result(target))
    return results


def _claim(folder: Path, words: Sequence[str]) -> None:
    """Note what the series runs, or check that it is the same."""
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
    """What to call for one run; None where it is over."""
    if not RunPaths(target).run.exists():
        return ["run", *words, "--replicas", str(count), "--output", str(target)]
    return None if is_over(target) else ["resume", str(target)]


def is_over(target: Path) -> bool:
    """Whether a run has come to its deadline."""
    ledger = Ledger()
    for batch in HistoryReader(open_run(target)).read_files():
        ledger.add(batch.records)
    return ledger.run_ended is not None and ledger.run_ended.body.reason == "deadline"
