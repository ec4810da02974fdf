"""Calls to another process of ours through its standard input and output, a JSON object a line."""

import asyncio
import base64
import contextlib
import itertools
import json
import os
import queue
import subprocess
import threading
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from aiperf.errors import LaunchError
from aiperf.processes import SAFE_PATH, open_input
from aiperf.storage.logs import open_log

Handler = Callable[..., Awaitable[object]]

CHUNK_BYTES = 1 << 16
"""Size of a piece of output or input: Ray sends it with a message, not through its store."""

_BYTES = "<bytes>"


def _encode(message: Mapping[str, object]) -> bytes:
    def plain(value: object) -> dict[str, str]:
        assert isinstance(value, bytes)
        return {_BYTES: base64.b64encode(value).decode()}

    return json.dumps(message, default=plain).encode() + b"\n"


def _decode(line: bytes) -> dict[str, Any]:
    def rich(value: dict[str, Any]) -> Any:
        return base64.b64decode(value[_BYTES]) if value.keys() == {_BYTES} else value

    return dict(json.loads(line, object_hook=rich))


async def serve(output: int, handlers: Mapping[str, Handler]) -> None:
    """Answer the calls on standard input, many at a time, on the descriptor `output`.

    Returns at the end of the input.
    """
    reader = await open_input()
    tasks: set[asyncio.Task[None]] = set()
    while line := await reader.readline():
        task = asyncio.create_task(_answer(output, handlers, _decode(line)))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    for task in tasks:
        task.cancel()


async def _answer(output: int, handlers: Mapping[str, Handler], call: dict[str, Any]) -> None:
    answer: dict[str, object] = {"id": call["id"]}
    try:
        answer["result"] = await handlers[call["method"]](**call["words"])
    except LaunchError as error:
        answer["refused"] = str(error), error.restart
    except ConnectionError as error:
        answer["lost"] = str(error)
    except Exception as error:  # an answer in any case, since the caller waits for it
        answer["refused"] = f"{type(error).__name__}: {error}", False
    data = _encode(answer)
    with contextlib.suppress(BrokenPipeError):  # the caller is gone, which the end of the input reports
        # Written in one go of the event loop, so that no other answer comes in between.
        while data:
            data = data[os.write(output, data) :]


class Callee:
    """A process that serves calls, from any event loop. It ends when this object is collected."""

    def __init__(self, command: Sequence[str], log: Path | None = None) -> None:
        with contextlib.ExitStack() as stack:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=None if log is None else stack.enter_context(open_log(log)),
                env={**os.environ, **SAFE_PATH},
                # Ctrl-C reaches every process of a terminal, and must not end the driver before its
                # replicas.
                start_new_session=True,
            )
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._calls = _Calls()
        # Threads, since neither a full pipe nor the end of an event loop may stop the callee.
        threading.Thread(target=_write, args=(process, self._outbox), daemon=True).start()
        threading.Thread(target=_read, args=(process, self._calls), daemon=True).start()
        # The threads know the queue and not this object, which can be collected while they wait.
        weakref.finalize(self, self._outbox.put, None)

    @property
    def ended(self) -> bool:
        """True if it answers no more calls."""
        return self._calls.ended

    async def call(self, method: str, **words: object) -> Any:
        """The result of a call.

        Raises LaunchError if it refuses, ConnectionError if it or what it relies on is gone.
        """
        number, future = self._calls.open()
        self._outbox.put(_encode({"id": number, "method": method, "words": words}))
        try:
            answer = await future
        finally:
            self._calls.forget(number)
        if "refused" in answer:
            raise LaunchError(*answer["refused"])
        if "lost" in answer:
            raise ConnectionError(answer["lost"])
        return answer["result"]


class _Calls:
    """The calls that wait for their answers."""

    def __init__(self) -> None:
        self.ended = False
        self._numbers = itertools.count()
        self._open: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._lock = threading.Lock()

    def open(self) -> tuple[int, asyncio.Future[dict[str, Any]]]:
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        # A call that is opened while the process ends is either refused here or settled by `end`:
        # under one lock there is no moment in between, in which it would wait for ever.
        with self._lock:
            if self.ended:
                raise ConnectionError("the process has ended")
            number = next(self._numbers)
            self._open[number] = future
        return number, future

    def forget(self, number: int) -> None:
        """Drop a call that is answered, or that is not awaited any more."""
        with self._lock:
            self._open.pop(number, None)

    def settle(self, answer: dict[str, Any]) -> None:
        with self._lock:
            future = self._open.pop(answer["id"], None)
        if future is None:
            return
        with contextlib.suppress(RuntimeError):  # its event loop is closed: the answer is not awaited any more
            future.get_loop().call_soon_threadsafe(_set, future, answer)

    def end(self) -> None:
        with self._lock:
            self.ended = True
            numbers = list(self._open)
        for number in numbers:
            self.settle({"id": number, "lost": "the process has ended"})


def _set(future: asyncio.Future[dict[str, Any]], answer: dict[str, Any]) -> None:
    if not future.done():
        future.set_result(answer)


def _write(process: subprocess.Popen[bytes], outbox: queue.SimpleQueue[bytes | None]) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin as stream:
        while (data := outbox.get()) is not None:
            stream.write(data)
            stream.flush()


def _read(process: subprocess.Popen[bytes], calls: _Calls) -> None:
    assert process.stdout is not None
    try:
        with process.stdout as stream:
            for line in stream:
                calls.settle(_decode(line))
    finally:  # also after a line that is not an answer: later answers have no receiver then
        calls.end()
    process.wait()
