"""The server of a dashboard, from its socket to its end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import shlex
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets, bind_unix_socket

from aiperf.clock import SystemClock
from aiperf.errors import EnvironmentNotReadyError
from aiperf.host import this_host
from aiperf.signals import heed
from dashboard.content import Board
from dashboard.guard import new_token
from dashboard.handlers import application
from dashboard.runs import Runs

LOOPBACK = "127.0.0.1"

TUNNEL_PORT = 8080
"""The browser's end of a tunnel to a socket in the file system."""


@dataclass(frozen=True, slots=True)
class Listener:
    """The sockets of a server, the address that a browser opens, and the tunnel to it."""

    sockets: list[socket.socket]
    origin: str
    tunnel: str


def listen(port: int, path: Path | None) -> Listener:
    """Listen on the loopback interface, or in the file system for this user alone.

    Raises EnvironmentNotReadyError if that is not possible.
    """
    host = shlex.quote(this_host().name())
    try:
        if path is not None:
            _remove_dead_socket(path)
            place = shlex.quote(str(path.absolute()))
            tunnel = f"ssh -L {TUNNEL_PORT}:{place} {host}"
            return Listener([bind_unix_socket(str(path), mode=0o600)], f"http://localhost:{TUNNEL_PORT}", tunnel)
        sockets = bind_sockets(port, LOOPBACK)
    except (OSError, ValueError, OverflowError) as error:
        where, remedy = (
            (f"port {port}", "choose another with --port, or 0 for any free one")
            if path is None
            else (f"the socket {path}", "choose another path with --socket")
        )
        raise EnvironmentNotReadyError([f"{where} cannot be used: {error}; {remedy}"]) from error
    port = sockets[0].getsockname()[1]
    return Listener(sockets, f"http://{LOOPBACK}:{port}", f"ssh -L {port}:{LOOPBACK}:{port} {host}")


def _remove_dead_socket(path: Path) -> None:
    """Remove the socket of a dashboard that has died; raises OSError if it lives."""
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(ConnectionRefusedError, FileNotFoundError):
        probe.connect(str(path))
        raise OSError(errno.EADDRINUSE, "another program listens there")
    path.unlink(missing_ok=True)


async def serve(runs: Runs, port: int, path: Path | None, announce: Callable[[str, str], None]) -> None:
    """Serve until SIGTERM or Ctrl-C; `announce` gets the address and the command of the tunnel."""
    over = asyncio.Event()
    heed(over.set, signal.SIGINT)
    token = new_token()
    board = Board(runs, token, SystemClock())
    listener = listen(port, path)
    server = HTTPServer(application(board, token), max_buffer_size=2**20, max_header_size=2**14)
    server.add_sockets(listener.sockets)
    preparing = asyncio.ensure_future(board.prepare())
    try:
        announce(listener.origin + board.address("/"), listener.tunnel)
        await over.wait()
    finally:
        server.stop()
        preparing.cancel()
        await board.stop()
        await asyncio.gather(preparing, return_exceptions=True)
        await server.close_all_connections()
        if path is not None:
            path.unlink(missing_ok=True)
