"""Time, passed in rather than read: UTC in milliseconds that runs with the monotonic clock."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:  # takes as long to import as all else that a short process needs of this module
    import asyncio

T = TypeVar("T")

TICKS = 12
"""Parts in which a deadline of silence is counted."""

MOST_TICK_S = 5.0
LATE_S = 0.25
"""A tick that is late by less was never suspended, however short it is: the machine is busy."""


class Clock(Protocol):
    """The time of a process, and its way to let time pass: the only one in the program.

    Deadlines inside asyncio (`asyncio.timeout`) are the event loop's, which a rehearsal replaces
    together with this.
    """

    def utc_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""

    def monotonic_ms(self) -> int:
        """Milliseconds of the node's monotonic clock, the same for all processes of a node."""

    def utc_ms_at(self, monotonic_ms: int) -> int:
        """UTC of a moment given on the node's monotonic clock."""

    def monotonic_s(self) -> float:
        """Seconds of the node's monotonic clock, to measure spans with."""

    async def sleep(self, seconds: float) -> None:
        """Let time pass; other tasks continue."""

    def pause(self, seconds: float) -> None:
        """Let time pass; the thread waits."""


class SystemClock:
    """UTC anchored once at construction and carried on by the monotonic clock.

    A step of the system clock during a run (NTP, an operator) therefore moves no record.
    `shift_ms` sets the clock wrong on purpose, to rehearse nodes that disagree.
    """

    def __init__(self, shift_ms: int = 0) -> None:
        self._anchor_ms = time.time_ns() // 1_000_000 + shift_ms - self.monotonic_ms()

    def utc_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        return self._anchor_ms + self.monotonic_ms()

    def monotonic_ms(self) -> int:
        """Milliseconds of CLOCK_MONOTONIC."""
        return time.monotonic_ns() // 1_000_000

    def utc_ms_at(self, monotonic_ms: int) -> int:
        """UTC of a moment given on the node's monotonic clock."""
        return self._anchor_ms + monotonic_ms

    def monotonic_s(self) -> float:
        """Seconds of CLOCK_MONOTONIC."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Let time pass; other tasks continue."""
        from asyncio import sleep  # noqa: PLC0415

        await sleep(seconds)

    def pause(self, seconds: float) -> None:
        """Let time pass; the thread waits."""
        time.sleep(seconds)


class AwakeWaits(Generic[T]):
    """`wait_awake` for one thing after the other.

    A wait that is short leaves its timer to the next one: there are millions.
    """

    def __init__(self, wait: Callable[[], Awaitable[T]], seconds: float) -> None:
        self._wait = wait
        self._seconds = seconds
        self._tick_s = min(seconds / TICKS, MOST_TICK_S)
        self._task: asyncio.Task[Any] | None = None
        """Waits now."""
        self._due_s = 0.0
        """Time of the loop at which the current part of the wait is over."""
        self._expired = False
        self._timer: asyncio.TimerHandle | None = None

    async def next(self) -> T:
        """The result of one more wait. Raises TimeoutError."""
        import asyncio  # noqa: PLC0415

        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        # A cancellation by the caller is distinguished from the timer's by their number
        # (documentation of asyncio.Task.cancelling).
        cancelled_before = task.cancelling()
        left_s, part_s = self._seconds, self._seconds / 2
        while True:
            began_s = loop.time()
            self._limit(task, began_s + part_s)
            try:
                return await self._wait()
            except asyncio.CancelledError:
                if not self._expired or task.cancelling() > cancelled_before + 1:
                    raise
            finally:
                self._task = None
                if self._expired:
                    # The timer's cancellation is taken back: those that are left are the caller's.
                    task.uncancel()
            if loop.time() - began_s - part_s <= max(self._tick_s, LATE_S):
                left_s -= part_s
            if left_s <= self._tick_s / 2:
                raise TimeoutError
            part_s = self._tick_s

    def _limit(self, task: asyncio.Task[Any], due_s: float) -> None:
        """Cancel the task at that time if it still waits then."""
        self._task, self._due_s, self._expired = task, due_s, False
        # One that is set rings earlier, and is then set to the time that is due now (`_ring`).
        if self._timer is None:
            self._timer = task.get_loop().call_at(due_s, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self._task is None:
            return
        loop = self._task.get_loop()
        if loop.time() < self._due_s:  # of an earlier wait
            self._timer = loop.call_at(self._due_s, self._ring)
        else:
            self._expired = True
            self._task.cancel()

    def close(self) -> None:
        """Give the timer back."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


async def wait_awake(wait: Callable[[], Awaitable[T]], seconds: float) -> T:
    """The result of `wait()`, for which at most `seconds` pass while this process is awake.

    Raises TimeoutError.

    A process that was suspended or stopped finds every deadline passed when it wakes, and what
    others sent meanwhile unread. The second half of the time is therefore counted in ticks of at
    most `MOST_TICK_S`: a tick that is late by more than its own length does not count, and what has
    come is read in the next one. The first half is one wait, and does not count either if its end
    is late: a primary need not wake every few seconds for each of thousands of replicas that send
    in time. `wait` is cancelled and called again after each part, and must lose nothing by that.
    """
    waits = AwakeWaits(wait, seconds)
    try:
        return await waits.next()
    finally:
        waits.close()


LENGTH = len("2026-01-31T12:00:00.000Z")


def format_utc(utc_ms: int) -> str:
    """ISO 8601 with milliseconds, such as 2026-01-31T12:00:00.000Z."""
    return f"{_second(utc_ms // 1000)}.{utc_ms % 1000:03d}Z"


@lru_cache(maxsize=64)
def _second(utc_s: int) -> str:
    """Cached: the writers of a large run share their seconds. More would have a primary grow."""
    return f"{datetime.fromtimestamp(utc_s, UTC):%Y-%m-%dT%H:%M:%S}"


def parse_utc(text: str) -> int:
    """Milliseconds since 1970 from the format of `format_utc`. Raises ValueError."""
    seconds, fraction = text[17:19], text[20:23]
    if (
        len(text) == LENGTH
        and (text[16], text[19], text[23]) == (":", ".", "Z")
        and seconds.isdecimal()
        and fraction.isdecimal()
        and seconds < "60"
    ):
        return _whole_minute_ms(text[:16]) + int(seconds) * 1000 + int(fraction)
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} names no time zone")
    whole = moment.replace(microsecond=0)
    return int(whole.timestamp()) * 1000 + moment.microsecond // 1000


@lru_cache(maxsize=2048)
def _whole_minute_ms(text: str) -> int:
    """Cached: the records of a long history share the minutes of half a day."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1000
