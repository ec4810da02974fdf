"""The primary's side of a relay: a replica whose lines come in frames."""

import asyncio
import contextlib
from pathlib import Path

from aiperf.errors import MessageError
from aiperf.processes import KILL_TIMEOUT_S, end_group
from aiperf.wire.lines import MAX_LINE_BYTES
from primary.launchers.contract import Exit
from primary.launchers.relays.remote import BEGINNING, EXIT, INPUT, OUTPUT, TERMINATE
from primary.launchers.relays.rendezvous import Channel
from primary.launchers.relays.task import remove_task

STARTER_GRACE_S = 2.0
"""Seconds for a starter to pass its end on to its task."""


class Gate(asyncio.ReadTransport):
    """Stops the frames while the lines that came are not read: the reader pauses its transport."""

    def __init__(self) -> None:
        super().__init__()
        self._open = asyncio.Event()
        self._open.set()
        self._closing = False

    def pause_reading(self) -> None:
        """Stop, unless the replica is being ended: then its last frames must come."""
        if not self._closing:
            self._open.clear()

    def resume_reading(self) -> None:
        """Let frames pass again."""
        self._open.set()

    def open_for_good(self) -> None:
        """Never stop again."""
        self._closing = True
        self._open.set()

    async def passed(self) -> None:
        """Wait until frames may pass."""
        await self._open.wait()


class RelayedProcess:
    """A replica behind a starter of a scheduler and a relay on its node."""

    def __init__(
        self, starter: asyncio.subprocess.Process, channel: Channel | None, task: Path, description: str
    ) -> None:
        self._starter = starter
        self._task = task
        self._description = description
        self._gate = Gate()
        self._output = asyncio.StreamReader(limit=MAX_LINE_BYTES)
        self._output.set_transport(self._gate)
        self._writer = channel[1] if channel else None
        self._began = False
        self._exit = Exit(None)
        self._following = asyncio.create_task(self._follow(channel[0] if channel else None))

    async def _follow(self, reader: asyncio.StreamReader | None) -> None:
        """Unpack the frames until the exit code or the end of the connection, then tidy up."""
        try:
            if reader is not None:
                await self._unpack(reader)
        except (OSError, ValueError, asyncio.IncompleteReadError):
            pass  # the connection is lost
        finally:
            self._output.feed_eof()
        await self._hang_up()
        if not self._began:
            # Some starters end with 0 whatever happened.
            self._exit = Exit(await self._starter.wait() or None)
        await end_group(self._starter, STARTER_GRACE_S)
        await remove_task(self._task)

    async def _hang_up(self) -> None:
        """Close the connection, by which a relay that is still there ends the replica."""
        if self._writer is not None:
            self._writer.transport.abort()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()

    async def _unpack(self, reader: asyncio.StreamReader) -> None:
        while not self._began:
            line = await reader.readline()
            if not line:
                return
            self._began = line == BEGINNING
        while header := await reader.readline():
            kind, length = header.split()
            payload = await reader.readexactly(int(length))
            if kind == EXIT:
                self._exit = Exit(int(payload))
                return
            if kind == OUTPUT:
                await self._gate.passed()
                self._output.feed_data(payload)

    async def send(self, data: bytes) -> None:
        """Write to its standard input; does nothing once it has ended."""
        self._write(INPUT, data)
        if self._writer is not None:
            with contextlib.suppress(OSError):
                await self._writer.drain()

    def _write(self, kind: bytes, payload: bytes) -> None:
        if self._writer is not None and not self._following.done():
            self._writer.write(kind + b" %d\n" % len(payload) + payload)

    async def receive(self) -> bytes:
        """The next line of its standard output, b"" at its end.

        Raises MessageError on an endless line.
        """
        try:
            return await self._output.readline()
        except ValueError as error:
            raise MessageError(f"the replica sent an endless line: {error}") from None

    async def wait(self) -> Exit:
        """Wait for its end.

        Without a relay there is only the starter's exit code; if the connection to the relay was
        lost, the exit has no code.
        """
        # Not awaited itself: a caller that is cancelled meanwhile would cancel the task, too.
        await asyncio.wait({self._following})
        return self._exit

    async def explain(self) -> str:
        """Describe the host, the job and the starter."""
        return self._description

    async def cancel(self, grace_s: float) -> Exit:
        """Make the relay end the replica and its children, then end the starter.

        A relay that cannot be reached ends the replica by itself.
        """
        self._gate.open_for_good()
        # Without waiting for room: a relay that is stopped, or a node without power, takes nothing.
        self._write(TERMINATE, b"%f" % grace_s)
        # A relay that has not begun has no replica to end.
        limit_s = grace_s + STARTER_GRACE_S + KILL_TIMEOUT_S if self._began else 0
        if not (await asyncio.wait({self._following}, timeout=limit_s))[0]:
            await self._hang_up()
            await end_group(self._starter, STARTER_GRACE_S)
            if not (await asyncio.wait({self._following}, timeout=KILL_TIMEOUT_S))[0]:
                self._following.cancel()
                self._output.feed_eof()
        await remove_task(self._task)
        return await self.wait()
