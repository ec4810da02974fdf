"""A sign of life on standard error while a verb works, and the line that ends one by Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from aiperf.clock import SystemClock

FIRST_S = 1.0
"""Seconds until a silent verb shows on a terminal that it works."""

NEXT_S = 0.5

FIRST_LINE_S, LINES_S = 30.0, 10.0
"""Seconds until the first line without a terminal, and between lines: short work needs no line."""

_CLOCK = SystemClock()

_ERASE = b"\r\x1b[K"


class _Sign:
    """The sign that a verb is at work, drawn by an interval timer of this process.

    A thread would keep large reports from copying their process, and a copy has no timer.
    """

    def __init__(self) -> None:
        self.verb = ""
        self.note = ""
        self.began_s = 0.0
        self.on_terminal = False
        self.shown = False

    def show(self, _: int, __: FrameType | None) -> None:
        passed_s = _CLOCK.monotonic_s() - self.began_s
        text = f"aiperf {self.verb}: {self.note or 'working'}, {passed_s:.0f} s"
        data = _ERASE + text.encode() if self.on_terminal else f"{text}\n".encode()
        self.shown = self.on_terminal
        with contextlib.suppress(OSError):  # a terminal that was closed
            os.write(2, data)  # the stream of `sys` may be in the middle of a write


_sign = _Sign()


def note(text: str) -> None:
    """Say what the verb works at, such as how much is done."""
    _sign.note = text


def finish() -> None:
    """End the sign: from now on the results themselves are printed."""
    if _sign.verb:
        _sign.verb = ""
        signal.setitimer(signal.ITIMER_REAL, 0)
        clear()


def clear() -> None:
    """Take the sign off the terminal before a line is printed."""
    if _sign.shown:
        _sign.shown = False
        with contextlib.suppress(OSError):
            os.write(2, _ERASE)


@contextlib.contextmanager
def waiting(verb: str) -> Iterator[None]:
    """Show that a verb works, until the end of this block; only the main thread can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _sign.verb, _sign.note, _sign.began_s, _sign.shown = verb, "", _CLOCK.monotonic_s(), False
    _sign.on_terminal = os.isatty(2)
    before = signal.signal(signal.SIGALRM, _sign.show)
    times = (FIRST_S, NEXT_S) if _sign.on_terminal else (FIRST_LINE_S, LINES_S)
    signal.setitimer(signal.ITIMER_REAL, *times)
    try:
        yield
    finally:
        finish()
        signal.signal(signal.SIGALRM, before)
