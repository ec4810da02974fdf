"""Time, passed in rather than read: UTC in milliseconds that runs with the monotonic clock."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from functools import lru_cache
from typing import Protocol


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
        await asyncio.sleep(seconds)

    def pause(self, seconds: float) -> None:
        """Let time pass; the thread waits."""
        time.sleep(seconds)


LENGTH = len("2026-01-31T12:00:00.000Z")


def format_utc(utc_ms: int) -> str:
    """ISO 8601 with milliseconds, such as 2026-01-31T12:00:00.000Z."""
    moment = datetime.fromtimestamp(utc_ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{utc_ms % 1000:03d}Z"


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
