"""Seconds of blocks that a device computes, added up without a wait for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch

from aiperf.clock import SystemClock

MOST_OPEN = 256
"""Most pairs of events that are under way; a step has one."""


class Spans(Protocol):
    """The sum of spans since it was taken."""

    def one(self, wanted: bool) -> Any:
        """Context of a block that is a span if it is wanted."""

    def take(self) -> float | None:
        """Take the seconds of all spans so far, after the device has done them."""


class NoSpans:
    """Spans on a device whose stream has no events that are known to tell the time."""

    @contextmanager
    def one(self, wanted: bool) -> Iterator[None]:
        """Run the block."""
        yield

    def take(self) -> float | None:
        """Give None: not measured."""
        return None


class HostSpans:
    """Spans of the host, on which a block is done when it returns."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._seconds = 0.0

    @contextmanager
    def one(self, wanted: bool) -> Iterator[None]:
        """Run the block, and add its seconds."""
        begun_s = self._clock.monotonic_s()
        yield
        if wanted:
            self._seconds += self._clock.monotonic_s() - begun_s

    def take(self) -> float | None:
        """Take the seconds of all spans so far."""
        found, self._seconds = self._seconds, 0.0
        return found


def _event() -> Any:
    return torch.cuda.Event(enable_timing=True)


class EventSpans:
    """Spans of a device's stream of work (CUDA's, and ROCm's by the same names).

    An all-reduce runs in a stream of the library, and the stream of the steps waits for it: events
    before and behind it enclose that wait. Nothing waits for the device before `take`, or before
    `MOST_OPEN` pairs are open.
    """

    def __init__(self, event: Callable[[], Any] = _event) -> None:
        self._event = event
        self._open: deque[tuple[Any, Any]] = deque()
        self._seconds = 0.0

    @contextmanager
    def one(self, wanted: bool) -> Iterator[None]:
        """Run the block between two events."""
        if not wanted:
            yield
            return
        begin, end = self._event(), self._event()
        begin.record()
        yield
        end.record()
        self._open.append((begin, end))
        while len(self._open) > MOST_OPEN:
            self._add()

    def take(self) -> float | None:
        """Take the seconds of all spans so far; wait for the last one."""
        while self._open:
            self._add()
        found, self._seconds = self._seconds, 0.0
        return found

    def _add(self) -> None:
        begin, end = self._open.popleft()
        end.synchronize()
        self._seconds += begin.elapsed_time(end) / 1000


SPANS: dict[str, type[HostSpans] | type[EventSpans]] = {"cpu": HostSpans, "cuda": EventSpans}
"""Spans by the kind of device; AMD's are "cuda", too."""
