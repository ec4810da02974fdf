"""The progress of work on many files, on standard error: a bar on a terminal, else lines."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich import progress

from aiperf.cli.console import PlainConsole
from aiperf.cli.lines import warn
from replica.datasets.prepare import Progress

LINES = 20
"""Lines of the whole work without a terminal."""


@contextmanager
def shown_progress() -> Iterator[Progress]:
    """The function to call after every file."""
    if not sys.stderr.isatty():
        yield _print_line
        return
    columns = (
        progress.MofNCompleteColumn(),
        progress.TextColumn("files"),
        progress.BarColumn(),
        progress.TextColumn("left:"),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=PlainConsole(file=sys.stderr)) as bar:
        task = bar.add_task("files", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _print_line(done: int, total: int) -> None:
    if done == total or done % max(1, total // LINES) == 0:
        warn(f"{done} of {total} files")
