"""Displays on standard error: a bar and a table on a terminal, plain lines elsewhere.

Standard output is for results.
"""

import errno
import io
import os
import stat
import sys
from collections.abc import Callable
from typing import Any, TextIO

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from aiperf.cli.console import PlainConsole, plain
from aiperf.cli.lines import say
from aiperf.cli.quality import qualities_text, target_text
from aiperf.cli.units import count, number, percent, si
from aiperf.cli.waiting import finish
from aiperf.clock import Clock
from aiperf.config.duration import format_duration
from aiperf.storage.patience import may_pass
from aiperf.wire.messages import Progress
from primary.display.state import Display, LiveReplica, LiveRun, ReplicaState

LINE_INTERVAL_S = 15.0
"""Spacing of status lines without a terminal."""

MAX_ROWS = 40
"""Rows of the table; further replicas are counted in its caption."""

BAR_WIDTH = 40

KEPT_BYTES = 65536
"""Upper limit for the bytes kept of output that a full disk has refused."""

LEFT = ("state", "phase", "workload")
"""Columns that are aligned to the left."""

STYLES: dict[ReplicaState, str] = {
    "starting": "yellow",
    "ready": "cyan",
    "working": "green",
    "lost": "bold red",
    "finished": "blue",
}
"""Colours of states."""


def summary(view: LiveRun) -> str:
    """The whole run in one line."""
    if view.elapsed_s is None:
        ready = sum(replica.state != "starting" for replica in view.replicas)
        return f"starting: {ready} of {count(len(view.replicas), 'replica')} answered"
    left = format_duration(view.duration_s - view.elapsed_s)
    return f"{format_duration(view.elapsed_s)} passed, {left} left | {_results(view)}"


def _results(view: LiveRun) -> str:
    working = sum(replica.state == "working" for replica in view.replicas)
    trials = sum(replica.trials for replica in view.replicas)
    until = "since the resumption" if view.resumed_s else "so far"
    return (
        f"{count(working, 'replica')} working, {count(trials, 'trial')} done | "
        f"{_best(view)} | {si(view.ops, 'OPS')} {until}"
    )


def _best(view: LiveRun) -> str:
    if view.suite == "science":
        return f"best {qualities_text(view.measured) or 'quality -'}"
    best = max((r.best_accuracy for r in view.replicas if r.best_accuracy is not None), default=None)
    return f"best accuracy {number(best)}"


def picture(view: LiveRun) -> Group:
    """The live view: the time as a bar, the results so far, and a table of the replicas."""
    return Group(*_head(view), table(view))


def _head(view: LiveRun) -> tuple[RenderableType, ...]:
    """Lines above the table: they are as wide as the terminal, whatever the width of the table."""
    if view.elapsed_s is None:
        return (plain(summary(view)),)
    passed_s = min(view.elapsed_s, view.duration_s)
    line = Table.grid(padding=(0, 1))
    line.add_row(
        ProgressBar(total=view.duration_s, completed=passed_s, width=BAR_WIDTH),
        f"{percent(passed_s / view.duration_s)}, {format_duration(view.duration_s - passed_s)} left",
    )
    return line, plain(_results(view))


def table(view: LiveRun) -> Table:
    """The replicas of the live view."""
    result = Table(expand=False)
    of_science = view.suite == "science"
    own = ("workload", "phase", "epoch", "quality", "target") if of_science else ("round", "phase", "epoch", "accuracy")
    headings = ("replica", "state", "trial", *own, "operations")
    for heading in headings:
        result.add_column(heading, justify="left" if heading in LEFT else "right")
    for replica in view.replicas[:MAX_ROWS]:
        row = _row(replica, _facts_of_model if of_science else _facts_of_round)
        result.add_row(*row, *["-"] * (len(headings) - len(row)))
    if len(view.replicas) > MAX_ROWS:
        result.caption = f"and {count(len(view.replicas) - MAX_ROWS, 'more replica')}"
    return result


def _facts_of_round(replica: LiveReplica, progress: Progress) -> list[str]:
    epochs = f"{progress.epoch}/{progress.epochs}"
    return [str(replica.round), progress.phase, epochs, number(progress.accuracy)]


def _facts_of_model(replica: LiveReplica, progress: Progress) -> list[str]:
    measured, epochs = progress.measured, f"{progress.epoch}/{progress.epochs}"
    if measured is None:
        return ["-", progress.phase, epochs, "-", "-"]
    return [measured.workload, progress.phase, epochs, number(measured.value), target_text(measured)]


def _row(replica: LiveReplica, facts: Callable[[LiveReplica, Progress], list[str]]) -> list[RenderableType]:
    """The cells of a replica; those behind the state are missing before it has reported."""
    progress, state = replica.progress, plain(replica.state, STYLES[replica.state])
    if replica.storage and replica.state in ("ready", "working"):
        state = plain("waits for storage", "bold yellow")
    if progress is None:
        return [str(replica.replica), state]
    return [str(replica.replica), state, str(progress.trial), *facts(replica, progress), si(replica.operations, "OP")]


class TerminalDisplay:
    """A bar and a table that are redrawn in place."""

    def __init__(self, stream: TextIO) -> None:
        self._live = Live(
            console=PlainConsole(file=stream), auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )
        self._live.start()

    def event(self, text: str) -> None:
        """Print a line above the table."""
        self._live.console.print(text, highlight=False, soft_wrap=True)

    def refresh(self, view: LiveRun) -> None:
        """Redraw the bar and the table."""
        self._live.update(picture(view), refresh=True)

    def close(self) -> None:
        """Leave the last state on the screen."""
        self._live.stop()


class LineDisplay:
    """Plain lines, for logs and pipes."""

    def __init__(self, stream: TextIO, clock: Clock) -> None:
        self._stream = stream
        self._clock = clock
        self._next_s = clock.monotonic_s()

    def event(self, text: str) -> None:
        """Print a line."""
        say(text, stream=self._stream)

    def refresh(self, view: LiveRun) -> None:
        """Print a status line, at most one in `LINE_INTERVAL_S`."""
        now_s = self._clock.monotonic_s()
        if now_s >= self._next_s:
            self._next_s = now_s + LINE_INTERVAL_S
            self.event(summary(view))

    def close(self) -> None:
        """Print what could not be printed before."""
        self._stream.flush()


class _Direct(io.TextIOBase):
    """A descriptor without Python's buffer, whose lock a blocked thread would keep."""

    def __init__(self, number: int) -> None:
        self._number = number

    def write(self, text: str) -> int:
        """Write all of a text. Raises OSError."""
        data = text.encode(errors="backslashreplace")
        while data:
            data = data[os.write(self._number, data) :]
        return len(text)

    def isatty(self) -> bool:
        """True on a terminal."""
        return os.isatty(self._number)

    def fileno(self) -> int:
        """The descriptor."""
        return self._number


class _Kept(_Direct):
    """A file, as a primary under NNI and detached runs have, whose disk may be full.

    What it refuses is printed later; of more than `KEPT_BYTES`, the last lines.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self._unprinted = b""

    def write(self, text: str) -> int:
        """Write a text, at once or later. Raises OSError if that cannot pass."""
        self._unprinted += text.encode(errors="backslashreplace")
        self.flush()
        return len(text)

    def flush(self) -> None:
        """Try to write what is left. Raises OSError if that cannot pass."""
        try:
            while self._unprinted:
                self._unprinted = self._unprinted[os.write(self._number, self._unprinted) :]
        except OSError as error:
            # A reader that has gone does not come back; a full disk may have room again.
            if error.errno == errno.EPIPE or not may_pass(error):
                raise
            if len(self._unprinted) > KEPT_BYTES:
                self._unprinted = self._unprinted[-KEPT_BYTES:].partition(b"\n")[2]


def open_display(clock: Clock) -> Display:
    """The display that fits standard error; it takes the place of the sign of life."""
    finish()
    try:
        number = sys.stderr.fileno()
        stream: Any = _Kept(number) if stat.S_ISREG(os.fstat(number).st_mode) else _Direct(number)
    except (OSError, ValueError):  # replaced by something that is not a file
        stream = sys.stderr
    return TerminalDisplay(stream) if stream.isatty() else LineDisplay(stream, clock)
