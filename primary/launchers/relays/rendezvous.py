"""The way of one relay to the primary: a port that is open until the relay has proved itself."""

import asyncio
import contextlib
import hmac
import secrets
import socket
from collections import deque
from typing import Any

from primary.launchers.relays.remote import GREETING_S, proof

Channel = tuple[asyncio.StreamReader, asyncio.StreamWriter]

MAX_STRANGERS = 8
"""Connections that have not proved themselves yet: each takes a descriptor of the primary."""


class Rendezvous:
    """A listener for one connection, from a process that knows the secret."""

    def __init__(self) -> None:
        self.secret = secrets.token_hex(32)
        self.port = 0
        self._server: asyncio.Server | None = None
        self._strangers: deque[asyncio.StreamWriter] = deque()
        self._arrived: asyncio.Future[Channel] = asyncio.get_running_loop().create_future()

    async def open(self) -> None:
        """Listen on a port that is free, on all interfaces. Raises OSError."""
        try:
            listener = socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
        except (OSError, ValueError):  # a machine without IPv6
            listener = socket.create_server(("", 0))
        self.port = listener.getsockname()[1]
        self._server = await asyncio.start_server(self._greet, sock=listener)

    async def arrival(self, starter: asyncio.subprocess.Process) -> Channel | None:
        """The relay's connection; None if its starter ends before it has come."""
        ended = asyncio.ensure_future(starter.wait())
        either: set[asyncio.Future[Any]] = {self._arrived, ended}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            return self._arrived.result() if self._arrived.done() else None
        finally:
            ended.cancel()

    def close(self) -> None:
        """Stop listening, and hang up on connections that have not proved themselves."""
        if self._server is not None:
            self._server.close()
        # A relay that comes too late must not believe that it is awaited.
        self._arrived.cancel()
        for stranger in self._strangers:
            stranger.transport.abort()

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._strangers.append(writer)
        if len(self._strangers) > MAX_STRANGERS:
            # The oldest: a relay proves itself within one round trip, a stranger takes its time.
            self._strangers.popleft().transport.abort()
        try:
            async with asyncio.timeout(GREETING_S):
                # Each side adds a number of its own to what is signed: an answer that was overheard
                # proves nothing in another connection.
                mine = secrets.token_hex(16).encode()
                writer.write(mine + b"\n")
                theirs, shown = (await reader.readline()).split()
                # Compared in constant time: the time to a refusal shows nothing of the right
                # answer.
                if not hmac.compare_digest(shown, proof(self.secret, b"relay", mine, theirs)) or self._arrived.done():
                    raise ValueError("not the relay")
                writer.write(proof(self.secret, b"primary", theirs, mine) + b"\n")
                await writer.drain()
            self._arrived.set_result((reader, writer))
        except (OSError, ValueError, TimeoutError, asyncio.InvalidStateError):
            writer.transport.abort()
        finally:
            with contextlib.suppress(ValueError):
                self._strangers.remove(writer)
