"""The server of a dashboard: its answers to requests, and its socket from first to last."""

import asyncio
import contextlib
import errno
import json
import shlex
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.iostream import StreamClosedError
from tornado.netutil import bind_sockets, bind_unix_socket
from tornado.web import Application, RequestHandler

from aiperf.clock import SystemClock
from aiperf.errors import EnvironmentNotReadyError
from aiperf.host import this_host
from aiperf.signals import heed
from dashboard.content import Board
from dashboard.guard import HEADERS, new_token, refusal
from dashboard.runs import Runs
from dashboard.watch import Feed
from dashboard.wording import sentence_of, state_of
from dashboard.work import Answer

# Answers to requests.
#
# The loopback interface is open to every user of the machine and, through the browser, to scripts
# of other sites. Therefore every answer needs the token, and no request changes anything.

ALIVE_S = 15.0
"""Seconds between signs of life, for proxies between a browser and the dashboard."""


class Handler(RequestHandler):
    """The base of all: refuses strangers, and sets the headers. Unknown addresses are not found."""

    def initialize(self, board: Board, token: str) -> None:
        """Take over what all requests share."""
        self.board = board
        self._token = token

    def set_default_headers(self) -> None:
        """Set them before anything can fail."""
        self.clear_header("Server")
        for name, value in HEADERS.items():
            self.set_header(name, value)

    def prepare(self) -> None:
        """Refuse a request before anything is done for it."""
        headers, given = self.request.headers, self.request.query_arguments.get("token", [b""])[-1]
        # Tornado calls no method for a request that is finished here.
        reason = refusal(self._token, given, headers.get("Host", ""), headers.get("Origin"))
        if reason is not None:
            self.answer(reason, "text/plain", HTTPStatus.FORBIDDEN)

    def answer(self, text: str, kind: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        """Send text and end."""
        self.set_status(status)
        self.set_header("Content-Type", f"{kind}; charset=utf-8")
        self.finish(text.encode(errors="replace"))

    def write_error(self, status_code: int, **_: Any) -> None:
        """Send an error in plain text, without traceback."""
        self.answer(HTTPStatus(status_code).phrase, "text/plain", HTTPStatus(status_code))

    async def get(self, *_: str) -> None:
        """Answer that there is no such page."""
        self.not_found()

    def not_found(self) -> None:
        """Send that this address leads nowhere."""
        self.answer(
            "there is no such page; open the address that `aiperf dashboard` printed",
            "text/plain",
            HTTPStatus.NOT_FOUND,
        )


class FrontPage(Handler):
    """The list of runs, or the only run."""

    async def get(self, *_: str) -> None:
        """Send the page."""
        self.answer(self.board.front_page(), "text/html")


class RunPage(Handler):
    """The page of a run."""

    async def get(self, *words: str) -> None:
        """Send the page without the report."""
        page = self.board.run_page(words[0])
        if page is None:
            self.not_found()
        else:
            self.answer(page, "text/html")


class ReportPage(Handler):
    """The report of a run as it is now."""

    async def get(self, *words: str) -> None:
        """Send the report; the first request waits until it is made."""
        watched = self.board.find(words[0])
        if watched is None:
            self.not_found()
            return
        if watched.view.answer is None or not watched.view.answer.page:
            await watched.feed.look()
        answer = watched.view.answer or Answer()
        if answer.error:
            self.answer(answer.error, "text/plain", HTTPStatus.SERVICE_UNAVAILABLE)
        else:
            self.answer(answer.page, "text/html")


class Metrics(Handler):
    """The metrics of all runs."""

    async def get(self, *_: str) -> None:
        """Send them, in the form that the reader accepts."""
        text, kind = await self.board.metrics(self.request.headers.get("Accept", ""))
        self.set_header("Content-Type", kind)
        self.finish(text)


class Script(Handler):
    """A script by its name."""

    async def get(self, *words: str) -> None:
        """Send the script."""
        if words[0] == "live":
            self.answer(self.board.live_script(), "text/javascript")
            return
        scripts = await self.board.scripts()
        texts = {"library": scripts.library, "page": scripts.script}
        # As a function, since a live page draws its charts again and again.
        texts["drawing"] = f"function drawReport(matchMedia) {scripts.script}"
        if not scripts.error:
            # Their address has the token, which no other dashboard has.
            self.set_header("Cache-Control", "private, max-age=86400")
        self.answer(texts[words[0]], "text/javascript")


class Events(Handler):
    """News of a run or of the list, as server-sent events, until the browser leaves."""

    _listening: asyncio.Task[None] | None = None

    async def get(self, *words: str) -> None:
        """Send an event for the present state, and for each change."""
        watched = self.board.find(words[0]) if words else None
        if words and watched is None:
            self.not_found()
            return
        self.set_header("Content-Type", "text/event-stream")
        feed = watched.feed if watched is not None else self.board.list_feed
        # A task of its own, which can be cancelled when the browser leaves: a write would notice
        # only at the next news.
        self._listening = asyncio.ensure_future(self._send(feed, words))
        with contextlib.suppress(asyncio.CancelledError, StreamClosedError):
            await self._listening

    async def _send(self, feed: Feed, words: tuple[str, ...]) -> None:
        seen = 0
        with feed.watched():
            # The headers at once: a browser takes the stream for open only when it has them.
            await self.flush()
            while True:
                try:
                    async with asyncio.timeout(ALIVE_S):
                        seen = await feed.newer(seen)
                    self.write(f"event: changed\ndata: {json.dumps(self._news(words))}\n\n")
                except TimeoutError:
                    self.write(": alive\n\n")
                await self.flush()

    def _news(self, words: tuple[str, ...]) -> dict[str, str | bool]:
        watched = self.board.find(words[0]) if words else None
        if watched is None:
            return {"state": "", "sentence": "", "page": True}
        answer = watched.view.answer
        page = answer is not None and bool(answer.page)
        return {"state": state_of(answer), "sentence": sentence_of(answer), "page": page}

    def on_connection_close(self) -> None:
        """Stop listening for a browser that has left."""
        if self._listening is not None:
            self._listening.cancel()


RUN = r"/run/([0-9a-f]{12})"


def application(board: Board, token: str) -> Application:
    """Make the application of all addresses. It logs no requests: addresses have the token."""
    shared = {"board": board, "token": token}
    return Application(
        [
            (r"/", FrontPage, shared),
            (r"/events", Events, shared),
            (r"/metrics", Metrics, shared),
            (RUN, RunPage, shared),
            (f"{RUN}/report", ReportPage, shared),
            (f"{RUN}/events", Events, shared),
            (r"/(library|page|drawing|live)\.js", Script, shared),
        ],
        default_handler_class=Handler,
        default_handler_args=shared,
        compress_response=True,
        log_function=lambda _: None,
    )


# The socket, on the loopback interface or in the file system, and the server's life.

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
    # For port 0 the system has chosen one.
    port = sockets[0].getsockname()[1]
    return Listener(sockets, f"http://{LOOPBACK}:{port}", f"ssh -L {port}:{LOOPBACK}:{port} {host}")


def _remove_dead_socket(path: Path) -> None:
    """Remove the socket of a dashboard that has died; raises OSError if it lives."""
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(ConnectionRefusedError, FileNotFoundError):
        # A socket file outlives its server. Only an attempt to connect shows whether one listens.
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
        # Streams of events have no end of their own.
        await server.close_all_connections()
        if path is not None:
            path.unlink(missing_ok=True)
