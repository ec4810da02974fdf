"""An event loop in virtual time: its clock jumps to the next timer when no task can run.

Threads would run in real time and end at moments that no seed decides; work for them is done at
once instead, and takes the virtual time that it says it costs.
"""

import asyncio
import contextlib
import contextvars
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any, TypeVar

from aiperf.errors import AiperfError

T = TypeVar("T")


class DeadlockError(AiperfError):
    """Tasks that all wait for another: nothing can ever happen again."""


class _Call:
    """A call that is due, or will be: what `asyncio.Handle` is, but for its debugging."""

    __slots__ = ("args", "callback", "context")

    def __init__(self, callback: Any, args: tuple[Any, ...], context: contextvars.Context | None) -> None:
        self.callback = callback
        self.args = args
        self.context = context or contextvars.copy_context()

    def cancel(self) -> None:
        """Do not call; what the call would hold is free."""
        self.callback = None
        self.args = ()

    def cancelled(self) -> bool:
        """True if it was cancelled."""
        return self.callback is None


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop whose time starts at 0 and jumps from timer to timer.

    It has no files and no threads, and so no selector to ask: of a rehearsal's millions of turns
    that would be half.
    """

    _stopping: bool  # of the base class, which the types of the library leave out

    def __init__(self) -> None:
        super().__init__()
        self._now_s = 0.0
        self._owed_s = 0.0
        self._due = deque[_Call | asyncio.Future[None]]()
        """Calls, and sleeps that are over."""
        self._timers: list[tuple[float, int, _Call | asyncio.Future[None]]] = []
        """A heap. Of equal times the one that was set first is the first."""
        self._numbers = count()
        self.interrupted = False
        """True after Ctrl-C, which each task that it ends would else report in full."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Report what no task took, but for the consequences of Ctrl-C."""
        if not self.interrupted:
            super().call_exception_handler(context)

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now_s

    def advance(self, seconds: float) -> None:
        """Let time pass for code that waits without the loop."""
        self._now_s += seconds

    def after(self, seconds: float) -> asyncio.Future[None]:
        """Make a future that is done after some seconds, faster than `asyncio.sleep`."""
        future: asyncio.Future[None] = asyncio.Future(loop=self)
        # The number decides between equal times, so that the order is the same in every rehearsal
        # and the heap never compares calls.
        heapq.heappush(self._timers, (self._now_s + seconds, next(self._numbers), future))
        return future

    def owe(self, seconds: float) -> None:
        """Let the work for a thread that is being done take this long."""
        self._owed_s += seconds

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        """Call in the next turn."""
        call = _Call(callback, args, context)
        self._due.append(call)
        return call

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        """Call soon as `call_soon` does: there is one thread, and nothing to wake."""
        return self.call_soon(callback, *args, context=context)

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        """Call after some seconds."""
        call = _Call(callback, args, context)
        heapq.heappush(self._timers, (self._now_s + delay, next(self._numbers), call))
        return call

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        """Call at a time."""
        call = _Call(callback, args, context)
        heapq.heappush(self._timers, (when, next(self._numbers), call))
        return call

    def _run_once(self) -> None:
        """Run all turns until the loop is stopped. Raises DeadlockError."""
        due, timers = self._due, self._timers
        # `run_forever` would call this method for each turn; to stay inside saves that.
        while not self._stopping:
            if not due:
                self._jump()
            while timers and timers[0][0] <= self._now_s:
                due.append(heapq.heappop(timers)[2])
            # Only the calls of this turn. Those that they add come in the next one, as in asyncio:
            # else a task that always yields would keep timers from their turn.
            for _ in range(len(due)):
                call = due.popleft()
                if not isinstance(call, _Call):
                    if not call.cancelled():
                        call.set_result(None)
                elif call.callback is not None:
                    try:
                        call.context.run(call.callback, *call.args)
                    except (SystemExit, KeyboardInterrupt):
                        raise
                    except BaseException as error:
                        self.call_exception_handler({"message": f"in {call.callback!r}", "exception": error})

    def _jump(self) -> None:
        """Let the time pass until the next timer. Raises DeadlockError if there is none."""
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if not timers:
            raise DeadlockError("every task waits for another: the run would hang")
        # `advance` may have passed the timer's time: time never goes back.
        self._now_s = max(self._now_s, timers[0][0])

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
    except KeyboardInterrupt:
        loop.interrupted = True
        raise
    finally:
        while left := asyncio.all_tasks(loop):
            for task in left:
                task.cancel()
            # Ctrl-C leaves the loop again with every task that waits for one that it ended.
            with contextlib.suppress(KeyboardInterrupt):
                loop.run_until_complete(asyncio.wait(left))
        loop.close()
