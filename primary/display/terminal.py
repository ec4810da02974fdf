"""Displays on standard error: a table on a terminal, plain lines elsewhere.

Standard output is for results.
"""

from __future__ import annotations

import sys
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.table import Table

from aiperf.cli.units import si
from aiperf.clock import Clock
from aiperf.config.duration import format_duration
from primary.display.state import Display, ReplicaView, RunView

LINE_INTERVAL_S = 15.0
"""Spacing of status lines without a terminal."""

MAX_ROWS = 40
"""Rows of the table; further replicas are counted in its caption."""


def summary(view: RunView) -> str:
    """The whole run in one line."""
    if view.elapsed_s is None:
        ready = sum(replica.state != "starting" for replica in view.replicas)
        return f"starting: {ready} of {len(view.replicas)} replicas answered"
    left = format_duration(view.duration_s - view.elapsed_s)
    best = max((r.best_accuracy for r in view.replicas if r.best_accuracy is not None), default=None)
    working = sum(replica.state == "working" for replica in view.replicas)
    accuracy = "-" if best is None else f"{best:.4f}"
    trials = sum(replica.trials for replica in view.replicas)
    return (
        f"{format_duration(view.elapsed_s)} passed, {left} left | {working} replicas working, {trials} trials done | "
        f"best accuracy {accuracy} | {si(view.ops, 'OPS')} so far"
    )


def table(view: RunView) -> Table:
    """The table of the live view."""
    result = Table(title=summary(view), title_justify="left", expand=False)
    for heading in ("replica", "state", "trial", "round", "phase", "epoch", "accuracy", "operations"):
        result.add_column(heading, justify="left" if heading in ("state", "phase") else "right")
    for replica in view.replicas[:MAX_ROWS]:
        result.add_row(*_row(replica))
    if len(view.replicas) > MAX_ROWS:
        result.caption = f"and {len(view.replicas) - MAX_ROWS} more replicas"
    return result


def _row(replica: ReplicaView) -> list[str]:
    progress = replica.progress
    if progress is None:
        return [str(replica.replica), replica.state, *["-"] * 6]
    accuracy = "-" if progress.accuracy is None else f"{progress.accuracy:.4f}"
    return [
        str(replica.replica),
        replica.state,
        str(progress.trial),
        str(replica.round),
        progress.phase,
        f"{progress.epoch}/{progress.epochs}",
        accuracy,
        f"{replica.operations:.3e}",
    ]


class TerminalDisplay:
    """A table that is redrawn in place."""

    def __init__(self, stream: TextIO) -> None:
        self._live = Live(console=Console(file=stream), auto_refresh=False)
        self._live.start()

    def event(self, text: str) -> None:
        """Print a line above the table."""
        self._live.console.print(text, markup=False, highlight=False)

    def refresh(self, view: RunView) -> None:
        """Redraw the table."""
        self._live.update(table(view), refresh=True)

    def close(self) -> None:
        """Leave the last table on the screen."""
        self._live.stop()


class LineDisplay:
    """Plain lines, for logs and pipes."""

    def __init__(self, stream: TextIO, clock: Clock) -> None:
        self._stream = stream
        self._clock = clock
        self._next_s = clock.monotonic_s()

    def event(self, text: str) -> None:
        """Print a line."""
        print(text, file=self._stream, flush=True)

    def refresh(self, view: RunView) -> None:
        """Print a status line, at most one in `LINE_INTERVAL_S`."""
        now_s = self._clock.monotonic_s()
        if now_s >= self._next_s:
            self._next_s = now_s + LINE_INTERVAL_S
            self.event(summary(view))

    def close(self) -> None:
        """No-op: every line is printed already."""


def open_display(clock: Clock) -> Display:
    """The display that fits standard error."""
    return TerminalDisplay(sys.stderr) if sys.stderr.isatty() else LineDisplay(sys.stderr, clock)
