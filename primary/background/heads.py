"""Heads of the primary's file while a run is in progress, for the screen and for a referee.

The head is the hash of the last record. Records are chained, and those of the primary carry hashes
of the replicas' records, so that one head stands for everything that was heard of until then. A
head that others have received, or stamped with a time, proves that the run was this far.
"""

import logging
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, Request, build_opener

from aiperf.config.sections.run import is_url
from aiperf.files import append_once
from aiperf.machine.addresses import THIS_MACHINE
from aiperf.records.history_files import HistoryWriter
from aiperf.rules.score import GRID_MS

log = logging.getLogger(__name__)

EXPLANATION = (
    "the lines that begin with 'head' are for a referee: by mail, or by run.heads as they come. They prove that the "
    "run was this far when they arrived"
)

ANSWER_S = 30.0
"""Longest wait for the answer of a URL."""

LAST_S = 10.0
"""Longest wait for the last line to be given, at the end of a run."""


class HeadLines:
    """Announces the head at the release, every 0.1 hour after it, and at the end."""

    def __init__(self, writer: HistoryWriter, announce: Callable[[str], None], target: str | None) -> None:
        self._writer = writer
        self._say = announce
        self._referee = Referee(target) if target is not None else None
        self._next = 0
        """The first moment of the grid that was not announced yet."""

    def look(self, elapsed_s: float) -> None:
        """Announce the head if another 0.1 hour has passed since the release."""
        passed = int(elapsed_s * 1000) // GRID_MS
        if passed >= self._next:
            if self._next == 0:
                self._say(EXPLANATION)
            # What was missed, as by a machine that slept, is not made up for.
            self._next = passed + 1
            self._announce(f"{passed * GRID_MS / 3_600_000:.1f} h")
        self._note_problems()

    def last(self) -> None:
        """Announce the head after the last record."""
        self._announce("end")
        if self._referee is not None:
            self._referee.close()
            self._note_problems()

    def _announce(self, moment: str) -> None:
        head = self._writer.head
        if head is not None:
            line = f"head {moment}: {self._writer.name} record {head[0]} sha256 {head[1]}"
            self._say(line)
            if self._referee is not None:
                self._referee.give(line)

    def _note_problems(self) -> None:
        for problem in self._referee.problems() if self._referee is not None else ():
            self._say(f"WARNING: the referee may lack heads of this run: {problem}")


class Referee:
    """Gives lines to a file or a URL, in order, in a thread: neither may hold up the run.

    Lines that could not be given are given again with the next one.
    """

    def __init__(self, target: str) -> None:
        self._give: Callable[[str], None] = _posted_to(target) if is_url(target) else _appended_to(Path(target))
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._problems: queue.Queue[str] = queue.Queue()
        self._thread = threading.Thread(target=self._work, name="heads", daemon=True)
        self._thread.start()

    def give(self, line: str) -> None:
        """Give a line as soon as those before it were given."""
        self._lines.put(line)

    def problems(self) -> list[str]:
        """The failures since the last call, in words."""
        return [self._problems.get_nowait() for _ in range(self._problems.qsize())]

    def close(self) -> None:
        """Wait a moment for the last line."""
        self._lines.put(None)
        self._thread.join(LAST_S)
        if self._thread.is_alive():
            self._problems.put(f"no answer within {LAST_S:.0f} s")

    def _work(self) -> None:
        left: list[str] = []
        while (line := self._lines.get()) is not None:
            left.append(line)
            try:
                self._give("".join(f"{each}\n" for each in left))
            except Exception as error:  # a library of the network may raise anything
                log.warning("heads cannot be given to the referee: %s", error)
                self._problems.put(f"{type(error).__name__}: {error}")
            else:
                left.clear()


def _appended_to(file: Path) -> Callable[[str], None]:
    return lambda text: append_once(file, text.encode())


def _posted_to(url: str) -> Callable[[str], None]:
    def post(text: str) -> None:
        # To the proxy of the environment, this machine would be another one.
        direct = [ProxyHandler({})] if urlsplit(url).hostname in THIS_MACHINE else []
        # The setting takes no other schemes than http and https.
        request = Request(url, text.encode(), {"Content-Type": "text/plain; charset=utf-8"})  # noqa: S310
        try:
            build_opener(*direct).open(request, timeout=ANSWER_S).close()
        except HTTPError as error:
            error.close()  # it holds the connection
            raise

    return post
