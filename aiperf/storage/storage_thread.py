"""Work that a thread does in order, so that an event loop never waits for storage."""

import asyncio
import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

Action = Callable[[], object]


class Ordered(Protocol):
    """An executor of actions in order, elsewhere, which calls an event loop back after them.

    The first action that raises is the last one, and no callback is called any more.
    """

    def put(self, action: Action) -> None:
        """Queue an action behind all that were put before."""

    def after(self, callback: Action) -> None:
        """Call back as soon as every action so far is done; at once if they are."""

    @property
    def idle(self) -> bool:
        """True if every action is done."""

    def drain(self, timeout_s: float) -> bool:
        """End after all actions; False if that takes longer.

        Raises the exception of the action that failed.
        """


MakeOrdered = Callable[[asyncio.AbstractEventLoop, Callable[[Exception], object]], Ordered]
"""`failed` gets the exception of the action that failed, in the loop."""


class InOrder:
    """A thread for actions, and callbacks of an event loop after all actions before them.

    Not a pool: the interpreter would wait for its threads at the end, and one that is inside a
    system call of a file server that does not answer cannot be ended. The first action that raises
    is the last one: `failed` gets its exception in the loop, and no callback is called any more.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, failed: Callable[[Exception], object]) -> None:
        self._loop = loop
        self._failed = failed
        # Both counts belong to the loop: `put` runs in it, and so does `_note`. They need no lock.
        self._given = 0
        self._done = 0
        self._waiting: deque[tuple[int, Action]] = deque()
        self._actions: queue.SimpleQueue[Action | None] = queue.SimpleQueue()
        self._broken: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="storage", daemon=True)
        self._thread.start()

    def put(self, action: Action) -> None:
        """Queue an action behind all that were put before."""
        self._given += 1
        self._actions.put(action)

    def after(self, callback: Action) -> None:
        """Call back as soon as every action so far is done; at once if they are."""
        if self._given == self._done:
            callback()
        else:
            self._waiting.append((self._given, callback))

    @property
    def idle(self) -> bool:
        """True if every action is done."""
        return self._given == self._done

    def drain(self, timeout_s: float) -> bool:
        """End the thread after all actions; False if it has not ended in time.

        Raises the exception of the action that failed.
        """
        self._actions.put(None)
        self._thread.join(timeout_s)
        if self._broken is not None:
            raise self._broken
        return not self._thread.is_alive()

    def _work(self) -> None:
        while (action := self._actions.get()) is not None:
            try:
                action()
            except Exception as error:
                self._broken = error
                # Bound as a default: the name `error` ends with this block.
                self._tell(lambda error=error: self._failed(error))  # type: ignore[misc]
                return
            self._tell(self._note)

    def _tell(self, callback: Action) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits
            self._loop.call_soon_threadsafe(callback)

    def _note(self) -> None:
        self._done += 1
        while self._waiting and self._waiting[0][0] <= self._done:
            self._waiting.popleft()[1]()
