"""Takers of a claim as threads of which one runs at a time, from one step to the next.

A taker stops before each step until the stage lets it go on: the order is the stage's choice, and
time is virtual.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

HOUR_MS = 3_600_000


class DiedError(BaseException):
    """The taker is killed: nothing of it runs any more."""


@dataclass
class Taker:
    """One process that wants the run."""

    number: int
    program: Callable[[Taker], None]
    alive: bool = True
    holds: bool = False
    got: int = 0
    """How often it got the run."""
    waits_until_s: float = 0.0
    seen: list[object] = field(default_factory=list)
    """The results of its steps so far, which decide what it does next."""
    error: BaseException | None = None
    _turn: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    _stopped: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    _killed: bool = False
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Run to the first step."""
        self._thread = threading.Thread(target=self._run, name=f"taker-{self.number}", daemon=True)
        self._thread.start()
        self._stopped.acquire()

    def _run(self) -> None:
        try:
            self.program(self)
        except DiedError:
            pass
        except BaseException as error:
            self.error = error
        self.alive = self.holds = False
        self._stopped.release()

    def stop_here(self) -> None:
        """A step: wait for the turn."""
        if threading.current_thread() is not self._thread:
            return  # called by the stage itself
        self._stopped.release()
        self._turn.acquire()
        if self._killed:
            raise DiedError

    def go_on(self) -> None:
        """Run to the next step."""
        self._turn.release()
        self._stopped.acquire()
        if self.error is not None:
            raise self.error

    def kill(self) -> None:
        """End it at this step."""
        self._killed = True
        self.go_on()


class StageClock:
    """Virtual time; the time of day is anything, and steps whenever it is read."""

    def __init__(self, stage: Stage, taker: Taker) -> None:
        self._stage, self._taker = stage, taker

    def utc_ms(self) -> int:
        return self._stage.now_ms + self._stage.step_of_clock(HOUR_MS)

    def monotonic_ms(self) -> int:
        return self._stage.now_ms

    def utc_ms_at(self, monotonic_ms: int) -> int:
        return monotonic_ms

    def monotonic_s(self) -> float:
        return self._stage.now_s

    async def sleep(self, seconds: float) -> None:
        self.pause(seconds)

    def pause(self, seconds: float) -> None:
        self._stage.wait(self._taker, seconds)


class Stage:
    """Virtual time, and all takers."""

    def __init__(self, step_of_clock: Callable[[int], int] = lambda _: 0) -> None:
        self.takers: list[Taker] = []
        self.now_s = 0.0
        self.doubles = 0
        """Moments at which two living takers held the run."""
        self.step_of_clock = step_of_clock

    @property
    def now_ms(self) -> int:
        return round(self.now_s * 1000)

    def wait(self, taker: Taker, seconds: float) -> None:
        """Let time pass for a taker."""
        taker.waits_until_s = self.now_s + seconds
        taker.stop_here()

    def hold(self, taker: Taker) -> None:
        """Note that a taker has the run now."""
        taker.holds = True
        taker.got += 1
        self.doubles += sum(other.holds for other in self.takers) > 1

    def go_on(self, taker: Taker) -> None:
        """Let one taker do its next step, at its time."""
        self.now_s = max(self.now_s, taker.waits_until_s)
        taker.go_on()

    def play(self) -> None:
        """Let all takers act to their ends, each at its time."""
        for taker in self.takers:
            taker.start()
        while ready := [taker for taker in self.takers if taker.alive]:
            self.go_on(min(ready, key=lambda taker: (taker.waits_until_s, taker.number)))

    def play_rest(self, taker: Taker) -> None:
        """Let one more taker act to its end, after the others."""
        taker.start()
        while taker.alive:
            self.go_on(taker)
