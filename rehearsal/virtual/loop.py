"""An event loop in virtual time: its clock jumps to the next timer when no task can run.

Threads would run in real time and end at moments that no seed decides; work for them is done at
once instead, and takes the virtual time that it says it costs.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from aiperf.errors import AiperfError

T = TypeVar("T")


class DeadlockError(AiperfError):
    """Every task waits for another, and nothing can ever happen again."""


class _JumpingSelector(selectors.DefaultSelector):
    """Polls without waiting; the time that a wait would have taken is added to the loop's clock."""

    skipped_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        """Nothing is ever ready: no file of this loop belongs to anybody else."""
        if timeout is None:
            raise DeadlockError("every task waits for another: the run would hang")
        if timeout > 0:
            self.skipped_s += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time starts at 0 and jumps from timer to timer."""

    def __init__(self) -> None:
        self._jumps = _JumpingSelector()
        super().__init__(self._jumps)
        self._owed_s = 0.0

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._jumps.skipped_s

    def advance(self, seconds: float) -> None:
        """Let time pass for code that waits without the loop."""
        self._jumps.skipped_s += seconds

    def owe(self, seconds: float) -> None:
        """Let the work for a thread that is being done take this long."""
        self._owed_s += seconds

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]
        """As `call_soon`: there is one thread, and nothing to wake."""
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Do the work now; its result comes when the time that it owes has passed."""
        future: asyncio.Future[Any] = self.create_future()
        try:
            result = func(*args)
        except Exception as error:
            self._owed_s = 0.0
            future.set_exception(error)
            return future
        owed_s, self._owed_s = self._owed_s, 0.0
        if owed_s > 0:
            self.call_later(owed_s, _give, future, result)
        else:
            future.set_result(result)
        return future


def _give(future: asyncio.Future[Any], result: object) -> None:
    if not future.done():
        future.set_result(result)


def run_virtually(main: Callable[[VirtualLoop], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine on a virtual loop. Raises DeadlockError."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(main(loop))
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left))
        loop.close()
