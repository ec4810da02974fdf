"""The state of a run in progress as the live view shows it, and the contract of a display."""

import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, Self

from aiperf.cli.quality import best_of_each
from aiperf.config.sections.run import RunSection
from aiperf.facts import Measured
from aiperf.wire.messages import Progress

log = logging.getLogger(__name__)

ReplicaState = Literal["starting", "ready", "working", "lost", "finished"]
"""States of a replica, in the words of the report."""


class Earlier(NamedTuple):
    """Work of a replica before the run was resumed."""

    trials: int = 0
    best_accuracy: float | None = None


@dataclass
class LiveReplica:
    """One row of the live view."""

    replica: int
    state: ReplicaState = "starting"
    round: int = 0
    progress: Progress | None = None
    finished_operations: int = 0
    best_accuracy: float | None = None
    measured: list[Measured] = field(default_factory=list)
    """The best of each scientific workload."""
    trials: int = 0
    storage: str = ""
    """The error of the file system that the replica waits for."""

    @property
    def operations(self) -> int:
        """Operations that this replica has reported, unfinished epochs included."""
        return self.finished_operations + (self.progress.operations if self.progress else 0)

    def take(self, progress: Progress) -> None:
        """Note a progress message."""
        if self.progress is not None and self.progress.trial != progress.trial:
            self.finished_operations += self.progress.operations
        self.progress = progress
        if progress.accuracy is not None:
            self.best_accuracy = max(self.best_accuracy or 0.0, progress.accuracy)
        if progress.measured is not None:
            self.measured = best_of_each([*self.measured, progress.measured])


@dataclass
class LiveRun:
    """The whole run as the live view shows it. Times are seconds since the release."""

    duration_s: float
    replicas: list[LiveReplica] = field(default_factory=list)
    elapsed_s: float | None = None
    suite: str = "automl"
    """Suite of the run."""
    resumed_s: float = 0.0
    """Time of the resumption, before which operations are not known; 0 in a run that began."""

    @classmethod
    def of(cls, run: RunSection, earlier: Mapping[int, Earlier]) -> Self:
        """The view of a run that begins, or of one that is resumed after `earlier` work."""
        replicas = [LiveReplica(number) for number in range(run.replicas)]
        for view in replicas:
            view.trials, view.best_accuracy = earlier.get(view.replica, Earlier())
        return cls(run.duration, replicas, suite=run.suite)

    @property
    def measured(self) -> list[Measured]:
        """The best of each scientific workload so far."""
        return best_of_each(found for replica in self.replicas for found in replica.measured)

    @property
    def ops(self) -> float:
        """Operations per second so far, or since the resumption.

        Provisional: the report recomputes it from the records.
        """
        total, passed_s = sum(replica.operations for replica in self.replicas), (self.elapsed_s or 0.0) - self.resumed_s
        return total / passed_s if passed_s > 0 else 0.0


class Display(Protocol):
    """Shows a run in progress."""

    def event(self, text: str) -> None:
        """Show a line about something that happened."""

    def refresh(self, view: LiveRun) -> None:
        """Show the current state; called about once a second."""

    def close(self) -> None:
        """End the live view with the run."""


class FailSafeDisplay:
    """A display that is dropped if it fails (closed terminal, full disk); the run continues."""

    def __init__(self, display: Display) -> None:
        self._display: Display | None = display

    def event(self, text: str) -> None:
        """Show a line about something that happened."""
        self._try(lambda display: display.event(text))

    def refresh(self, view: LiveRun) -> None:
        """Show the current state."""
        self._try(lambda display: display.refresh(view))

    def close(self) -> None:
        """End the live view with the run."""
        self._try(lambda display: display.close())

    def _try(self, action: Callable[[Display], None]) -> None:
        display = self._display
        if display is None:
            return
        try:
            action(display)
        except Exception as error:
            self._display = None
            log.warning("the live view has failed and is closed: %s: %s", type(error).__name__, error)
            with contextlib.suppress(Exception):  # it gives standard output back to the report
                display.close()


class SeveralDisplays:
    """Displays that all show the same run."""

    def __init__(self, *displays: Display) -> None:
        self._displays = displays

    def event(self, text: str) -> None:
        """Show a line about something that happened."""
        for display in self._displays:
            display.event(text)

    def refresh(self, view: LiveRun) -> None:
        """Show the current state."""
        for display in self._displays:
            display.refresh(view)

    def close(self) -> None:
        """End the live view with the run."""
        for display in self._displays:
            display.close()


LAST_WORDS_S = 5.0
"""Seconds at the end of the run for a terminal to take the output that is not shown yet."""


class PatientDisplay:
    """A display that may block, in a thread of its own; the run does not wait for it.

    A terminal blocks while its output is stopped (Ctrl-S), and while the connection to its user is
    lost without an end. Lines are shown later then, and views are left out.
    """

    def __init__(self, display: Display) -> None:
        self._display = display
        # Without a limit: `put` must not block the event loop, and a run announces few lines.
        self._lines: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._drawing = threading.Lock()
        """Held from the request for a view until it is drawn."""
        self._thread = threading.Thread(target=self._work, name="display", daemon=True)
        self._thread.start()

    def event(self, text: str) -> None:
        """Show a line about something that happened."""
        self._lines.put(lambda: self._display.event(text))

    def refresh(self, view: LiveRun) -> None:
        """Show the current state, unless the last one is not drawn yet."""
        # At most one view waits: a terminal that was stopped shows the present state next, not old
        # ones.
        if self._drawing.acquire(blocking=False):
            self._lines.put(lambda: self._draw(view))

    def close(self) -> None:
        """End the live view with the run; what a terminal does not take in time is lost."""
        self._lines.put(self._display.close)
        self._lines.put(None)
        self._thread.join(LAST_WORDS_S)

    def _draw(self, view: LiveRun) -> None:
        try:
            self._display.refresh(view)
        finally:
            self._drawing.release()

    def _work(self) -> None:
        while (action := self._lines.get()) is not None:
            action()
