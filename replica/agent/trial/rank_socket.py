"""The agent's end of the socket to rank 0 of a training."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
from typing import Any

from aiperf.errors import TrialFailedError
from aiperf.wire.lines import MAX_LINE_BYTES, encode
from aiperf.wire.messages import Message, TrainRequest
from replica.trainer.channel import peer_user


class RankSocket:
    """A local socket with a random name.

    It accepts one connection, of this user, and greets it with the request.
    """

    def __init__(self, request: TrainRequest) -> None:
        self.name = f"aiperf-{secrets.token_hex(16)}"
        """Its name in Linux's abstract namespace, without the leading zero byte."""
        self._request = request
        self._connected: asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Future()
        self._server: asyncio.Server | None = None

    async def listen(self) -> None:
        """Wait for rank 0 from now on. Raises OSError."""
        self._server = await asyncio.start_unix_server(self.accept, f"\0{self.name}", limit=MAX_LINE_BYTES)

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take a connection if it is the first one of this user; otherwise close it.

        An error is raised by `send` and `next_line`: this is called by the event loop, where it
        would reach nobody.
        """
        end: socket.socket = writer.get_extra_info("socket")
        try:
            if self._connected.done() or peer_user(end) != os.getuid():
                writer.close()
                return
            writer.write(encode(self._request))
        except Exception as error:
            writer.close()
            failure = TrialFailedError("start", f"the trainer cannot be asked: {type(error).__name__}: {error}")
            self._connected.set_exception(failure)
            return
        self._connected.set_result((reader, writer))

    async def send(self, message: Message) -> None:
        """Send a message as soon as rank 0 is connected.

        A rank that is gone is noticed by its end, not here.
        """
        _, writer = await self._connected
        with contextlib.suppress(ConnectionError):
            writer.write(encode(message))
            await writer.drain()

    async def next_line(self, process: asyncio.subprocess.Process) -> bytes:
        """The next line; b"" at the end of the connection, or if `process` ends unconnected.

        Raises ValueError for a line that is too long.
        """
        if not await self._connected_before_the_end_of(process):
            return b""
        try:
            return await self._connected.result()[0].readline()
        except ConnectionError:
            return b""

    async def _connected_before_the_end_of(self, process: asyncio.subprocess.Process) -> bool:
        if not self._connected.done():
            waiting: set[asyncio.Task[Any]] = {
                asyncio.create_task(process.wait()),
                # In a wait of its own: cancelling this task must not cancel the future.
                asyncio.create_task(asyncio.wait({self._connected})),
            }
            try:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            finally:  # this may be cancelled and called again
                for task in waiting:
                    task.cancel()
        return self._connected.done()

    def close(self) -> None:
        """Close the connection and accept none any more."""
        if self._connected.done() and self._connected.exception() is None:
            self._connected.result()[1].close()
        if self._server is not None:
            self._server.close()
