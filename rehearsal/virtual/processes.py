"""Replicas as tasks of one process: the real agent behind queues in place of pipes."""

import asyncio
import signal
from collections import deque
from collections.abc import Callable, Coroutine
from typing import cast

from aiperf.wire.lines import encode
from aiperf.wire.messages import Message, ToPrimary
from primary.launchers.contract import Exit, ReplicaProcess

Send = Callable[[Message], None]
Serve = Callable[[asyncio.StreamReader, Send], Coroutine[None, None, None]]


class VirtualProcess(ReplicaProcess):
    """An agent as a task. `on_kill` ends what it would still do, such as its writes."""

    def __init__(self, serve: Serve, on_kill: Callable[[], None] = lambda: None) -> None:
        self._input = asyncio.StreamReader()
        self._output = deque[ToPrimary | None]()
        self._waiting: asyncio.Future[None] | None = None
        """Future of the next message."""
        self._on_kill = on_kill
        self._killed = self._severed = False
        self._task = asyncio.create_task(serve(self._input, self._take))
        # The end of the output, however the task ends.
        self._task.add_done_callback(lambda _: self._put(None))

    def _take(self, message: Message) -> None:
        if not self._killed and not self._severed:
            self._put(cast(ToPrimary, message))

    def _put(self, message: ToPrimary | None) -> None:
        self._output.append(message)
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    @property
    def alive(self) -> bool:
        """True until it has ended or was killed."""
        return not self._killed and not self._task.done()

    async def send(self, data: bytes) -> None:
        """Write to its standard input."""
        if self.alive and not self._severed:
            self._input.feed_data(data)

    async def receive(self) -> bytes:
        """The next line of its standard output, b"" at its end."""
        message = await self.next_message()
        return b"" if message is None else encode(message)

    async def next_message(self) -> ToPrimary | None:
        """The next message, which is immutable; None at the end of the process."""
        while not self._output:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        return self._output.popleft()

    async def wait(self) -> Exit:
        """Wait for its end."""
        await asyncio.wait({self._task})
        return Exit(-signal.SIGKILL if self._killed else 0)

    async def explain(self) -> str:
        """Return an empty text: no launcher knows anything of the process."""
        return ""

    def kill(self) -> None:
        """End it as SIGKILL does: nothing that it still does has an effect."""
        if self.alive:
            self._killed = True
            self._on_kill()
            self._task.cancel()

    def sever(self) -> None:
        """Close its pipes, as the death of the primary does: it ends by itself."""
        if not self._severed:
            self._severed = True
            if not self._task.done():
                self._input.feed_eof()

    async def cancel(self, grace_s: float) -> Exit:
        """Close its input, and kill it after `grace_s`."""
        if self._severed:
            # Its primary is dead: the end that this handle would wait for is another primary's to
            # see.
            return Exit(None)
        if self.alive:
            self._input.feed_eof()
            await asyncio.wait({self._task}, timeout=grace_s)
            self.kill()
        return await self.wait()

    @property
    def ended(self) -> asyncio.Task[None]:
        """The task, to wait for."""
        return self._task
