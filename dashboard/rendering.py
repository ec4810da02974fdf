"""The server's handle on a worker: a process of its own, so that the server always answers."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable

from aiperf.processes import python_module
from dashboard.work import Answer, Task
from dashboard.worker import LENGTH_BYTES


class Worker:
    """A process that answers one task after another; it starts with the first one."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()
        self._asked: set[asyncio.Task[Answer]] = set()

    async def ask(self, task: Task, early: Callable[[Answer], None] = lambda answer: None) -> Answer:
        """The last answer to a task, and the others to `early`.

        Its error says so if the process died of the task.
        """
        asked = asyncio.ensure_future(self._ask(task, early))
        # The event loop keeps only a weak reference to a task (documentation of
        # asyncio.create_task).
        self._asked.add(asked)
        asked.add_done_callback(self._asked.discard)
        # A reader who leaves must not leave half an answer in the pipe.
        return await asyncio.shield(asked)

    async def _ask(self, task: Task, early: Callable[[Answer], None]) -> Answer:
        async with self._turn:
            try:
                process = await self._running()
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write(task.model_dump_json().encode() + b"\n")
                await process.stdin.drain()
                while (answer := await _read_answer(process.stdout)).more:
                    early(answer)
                return answer
            except (OSError, EOFError):
                code = await self._kill()
                return Answer(error=f"the process that reads the runs ended with {code}; it may have run out of memory")
            except ValueError as error:
                await self._kill()  # more answers may be in the pipe
                return Answer(error=f"the run cannot be shown: {error}")

    async def _running(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            # In a session of its own: Ctrl-C reaches the server alone, which ends it.
            self._process = await asyncio.create_subprocess_exec(
                *python_module("dashboard.worker"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        return self._process

    async def _kill(self) -> int | None:
        """End the process and its own ones; its exit code."""
        process, self._process = self._process, None
        if process is None:
            return None
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        if process.stdout is not None:
            await process.stdout.read()  # asyncio does not see the end of a full pipe that is not read
        return await process.wait()

    async def stop(self) -> None:
        """End the process, whatever it does; it only reads."""
        asked = tuple(self._asked)
        for one in asked:
            one.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        await self._kill()


async def _read_answer(stream: asyncio.StreamReader) -> Answer:
    length = int.from_bytes(await stream.readexactly(LENGTH_BYTES))
    return Answer.model_validate_json(await stream.readexactly(length))
