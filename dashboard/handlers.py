"""The answers to requests: all of them only to whoever has the token, and none changes anything."""

from __future__ import annotations

import asyncio
import contextlib
import json
from http import HTTPStatus
from typing import Any

from tornado.iostream import StreamClosedError
from tornado.web import Application, RequestHandler

from dashboard.content import Board
from dashboard.guard import HEADERS, refusal
from dashboard.watch import Feed
from dashboard.wording import sentence_of, state_of
from dashboard.work import Answer

ALIVE_S = 15.0
"""From one sign of life to the next, for what stands between a browser and the dashboard."""


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
        """No page is here."""
        self.not_found()

    def not_found(self) -> None:
        """Send that this address leads nowhere."""
        self.answer("there is no such page; open the address that `aiperf dashboard` printed",
                    "text/plain", HTTPStatus.NOT_FOUND)  # fmt: skip


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


class Script(Handler):
    """One of the scripts, by its name."""

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
        self._listening = asyncio.ensure_future(self._send(feed, words))
        with contextlib.suppress(asyncio.CancelledError, StreamClosedError):
            await self._listening

    async def _send(self, feed: Feed, words: tuple[str, ...]) -> None:
        seen = 0
        with feed.watched():
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
    """All addresses. Requests are not logged: their addresses have the token."""
    shared = {"board": board, "token": token}
    return Application(
        [
            (r"/", FrontPage, shared),
            (r"/events", Events, shared),
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
