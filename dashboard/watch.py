"""Runs under watch: read again when their records change, as long as a page of them is open."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator

from aiperf.clock import Clock
from aiperf.run_directory.changes import look_at
from aiperf.run_directory.claim import find_holder
from aiperf.run_directory.paths import RunPaths
from aiperf.run_directory.snapshot import STALE_MS
from aiperf.run_directory.state import OVER
from analysis.output.page.links import Links
from dashboard.rendering import Worker
from dashboard.work import Answer, Task

INTERVAL_S = 0.5
"""Seconds between two looks at the files."""

LONGEST_MS = 30_000
"""A run that has not ended is read again after this time: time passes without records, too."""

SCAN_SHARE = 20
"""Looks at the files take at most one part of this many of the time: they may be many, and far."""


class View:
    """View of a run in a page, and the state of the files that it was made from."""

    def __init__(self, paths: RunPaths, worker: Worker, clock: Clock, links: Links | None = None) -> None:
        self.paths = paths
        self.answer: Answer | None = None
        self.on_status: Callable[[], None] = lambda: None
        """Called when the status is known, and the first page is not yet."""
        self._worker = worker
        self._clock = clock
        self._links = links
        self._seen: object = None
        self._turn = asyncio.Lock()

    async def refresh(self) -> bool:
        """Read the run again if it has changed; true if it has."""
        # A page and its stream of events may ask at once: the second one then finds nothing new.
        async with self._turn:
            # Before the reading: what is written during it is found at the next look.
            seen = await asyncio.to_thread(self._state_of_files)
            if seen == self._seen:
                return False
            task = Task(run=self.paths.root.absolute(), links=self._links)
            self.answer = await self._worker.ask(task, self._take_status)
            self._seen = seen
            return True

    def _take_status(self, answer: Answer) -> None:
        if self.answer is None or not self.answer.page:
            self.answer = answer
            self.on_status()

    def _state_of_files(self) -> object:
        now_ms = self._clock.utc_ms()
        status = self.answer.status if self.answer is not None else None
        passed = None if status is not None and status.state in OVER else now_ms // LONGEST_MS
        # The holder is part of the state: a primary that dies changes no file.
        return self._look(now_ms), find_holder(self.paths.claims, now_ms), passed

    def _look(self, now_ms: int) -> object:
        """The files that change with the run: of a large one in progress, its snapshot alone."""
        with contextlib.suppress(OSError):
            snapshot = self.paths.snapshot.stat()
            # In both directions: the file server's clock may be ahead of this one.
            if abs(now_ms / 1000 - snapshot.st_mtime) < STALE_MS / 1000:
                return snapshot.st_size, snapshot.st_ctime_ns
        return look_at(self.paths)


class Feed:
    """A refresh that is repeated while someone watches, and wakes those who wait for news."""

    def __init__(self, refresh: Callable[[], Awaitable[bool]], clock: Clock) -> None:
        self.version = 0
        self._refresh = refresh
        self._clock = clock
        self._news = asyncio.Event()
        self._watchers = 0
        self._loop: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Keep the feed going meanwhile."""
        self._watchers += 1
        if self._loop is None or self._loop.done():
            self._loop = asyncio.ensure_future(self._repeat())
        try:
            yield
        finally:
            # The loop itself sees at its next turn that nobody is left; who comes before keeps it
            # going.
            self._watchers -= 1

    async def newer(self, seen: int) -> int:
        """Wait for a version after the one seen."""
        while self.version <= seen:
            await self._news.wait()
        return self.version

    async def look(self) -> bool:
        """Refresh once, and report what is new; true if something is."""
        changed = await self._refresh()
        if changed:
            self.publish()
        return changed

    def publish(self) -> None:
        """Wake those who wait for a newer version."""
        self.version += 1
        self._news.set()
        # A new event for the next version: one that is cleared could miss a waiter that has not run
        # yet.
        self._news = asyncio.Event()

    async def _repeat(self) -> None:
        while self._watchers:
            begun_s = self._clock.monotonic_s()
            changed = await self.look()
            took_s = self._clock.monotonic_s() - begun_s
            # A large history is read at most two thirds of the time.
            await self._clock.sleep(max(INTERVAL_S, took_s / 2 if changed else SCAN_SHARE * took_s))

    def stop(self) -> None:
        """End the repetition."""
        if self._loop is not None:
            self._loop.cancel()
