"""Work on many files as its user sees it: progress on standard error, and the findings."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich import progress

from aiperf.cli.console import PlainConsole
from aiperf.cli.lines import say, warn
from aiperf.cli.waiting import finish
from aiperf.errors import EXIT_DONE, EXIT_FAILED
from workloads.datasets.prepare import Progress

LINES = 20
"""Number of lines of progress without a terminal."""


@contextmanager
def shown_progress() -> Iterator[Progress]:
    """Run a block with a function to call after every file: a bar on a terminal, else lines."""
    finish()
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


def say_findings(problems: Sequence[str], notes: Sequence[str], counted: str) -> int:
    """Print the findings of a check, and the amount that it has read; give the exit code."""
    for problem in problems:
        say(problem)
    for note in notes:
        say(f"note: {note}")
    say(f"{counted}; {len(problems)} problem(s)")
    return EXIT_FAILED if problems else EXIT_DONE


def _print_line(done: int, total: int) -> None:
    if done == total or done % max(1, total // LINES) == 0:
        warn(f"{done} of {total} files")
