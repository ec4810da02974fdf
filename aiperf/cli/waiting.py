"""A sign of life on standard error while a verb works, and its end when results are printed."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from aiperf.clock import SystemClock
from aiperf.signals import WARNINGS

FIRST_S, NEXT_S = 1.0, 0.5
"""Seconds until a silent verb shows on a terminal that it works, and between such signs."""

FIRST_LINE_S, LINES_S = 30.0, 10.0
"""Seconds until the first line without a terminal, and between lines: short work needs no line."""

_PROGRAM = Path(__file__).with_name("sign.py")

_CLOCK = SystemClock()

_ERASE = b"\r\x1b[K"


class _Sign:
    """The sign that a verb is at work, drawn by `sign.py` in a process of its own."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._verb = ""
        self._began_s = self._due_s = self._noted_s = 0.0

    @property
    def _drawn(self) -> subprocess.Popen[bytes] | None:
        """The program; None without one, and in a copy of the verb's process."""
        return self._process if self._owner == os.getpid() else None

    def begin(self, verb: str) -> None:
        """Start the sign of a verb that begins now; no-op while there is one."""
        if self._drawn is not None:
            return
        self._verb, self._began_s = verb, _CLOCK.monotonic_s()
        self._draw_after(FIRST_S if os.isatty(2) else FIRST_LINE_S)

    def _draw_after(self, seconds: float) -> None:
        self._owner, self._due_s = os.getpid(), _CLOCK.monotonic_s() + seconds
        words = (self._owner, self._began_s, self._due_s, NEXT_S if os.isatty(2) else LINES_S, self._verb)
        # Ctrl-C is sent to all processes of a terminal, a warning to all of a job: this one heeds
        # them, and ends the other.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, *WARNINGS})
        try:
            os.fstat(2)  # if it is closed, the pipe would take its number
            # Isolated and without site packages, it is there within hundredths of a second.
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_PROGRAM), *map(str, words)], stdin=subprocess.PIPE, bufsize=0
            )
        except OSError:  # no room for another process: the verb works without a sign
            self._process = None
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def note(self, text: str) -> None:
        """Hand a note over, at most as often as the sign is drawn."""
        now_s, process = _CLOCK.monotonic_s(), self._drawn
        if process is not None and process.stdin is not None and now_s >= self._noted_s + NEXT_S:
            self._noted_s = now_s
            with contextlib.suppress(OSError):  # the terminal was closed
                process.stdin.write(f"{text}\n".encode())

    def pause(self) -> None:
        """Take the sign off the terminal; it comes back later."""
        if self._drawn is not None and os.isatty(2) and _CLOCK.monotonic_s() >= self._due_s:
            self.end()
            self._draw_after(NEXT_S)

    def end(self) -> None:
        """End the sign, and take it off the terminal."""
        process = self._drawn
        if process is None:
            return
        # It has nothing to finish, and must not draw once more.
        process.kill()
        process.wait()
        if process.stdin is not None:
            process.stdin.close()
        self._process = None
        if _CLOCK.monotonic_s() >= self._due_s and os.isatty(2):
            with contextlib.suppress(OSError):  # a terminal that was closed
                os.write(2, _ERASE)  # the stream of `sys` may be in the middle of a write


_sign = _Sign()


def note(text: str) -> None:
    """Say what the verb works at, such as how much is done."""
    _sign.note(text)


def finish() -> None:
    """End the sign: from now on the results themselves are printed."""
    _sign.end()


def clear() -> None:
    """Take the sign off the terminal before a line is printed."""
    _sign.pause()


def begin(words: Sequence[str]) -> None:
    """Start the sign for a command line, before what is to be imported for it."""
    if words and words[0] != "help" and not words[0].startswith("-") and "_ARGCOMPLETE" not in os.environ:
        _sign.begin(words[0])


@contextlib.contextmanager
def waiting(verb: str) -> Iterator[None]:
    """Show that a verb works, until the end of this block or until results are printed."""
    _sign.begin(verb)
    try:
        yield
    finally:
        finish()
