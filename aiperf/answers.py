"""Programs that are started for what they print: in the C locale, with a time limit, and bounded.

In other locales numbers have commas, and the words that callers look for are translated.
"""

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aiperf.ranks import without_ranks

LOCALE = {"LC_ALL": "C"}

MOST_BYTES = 64 * 2**20
"""Upper limit for a program's output; that of `squeue` on the largest machines has a few MiB."""

MOST_CHARACTERS = 2000
"""Upper limit for the characters of a reason."""

KILL_TIMEOUT_S = 5.0
"""Longest wait for a killed program: one that waits for a dead file system stays."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Output and end of a program."""

    code: int | None
    """Exit code, negative for a signal; None if the program gave no answer: `reason` says why."""
    output: str = ""
    errors: str = ""
    started: bool = True
    missing: bool = False
    """True if there is no such program."""

    @property
    def fine(self) -> bool:
        """True if the program ended with exit code 0."""
        return self.code == 0

    @property
    def reason(self) -> str:
        """Lines of the standard error, or else of the output, in one line; or the exit code."""
        return in_one_line(self.errors) or in_one_line(self.output) or f"exit code {self.code}"


def in_one_line(text: str) -> str:
    """Join the lines of a text that are not empty; at most MOST_CHARACTERS and an ellipsis."""
    joined = "; ".join(line.strip() for line in text.splitlines() if line.strip())
    return joined if len(joined) <= MOST_CHARACTERS else f"{joined[:MOST_CHARACTERS]} ..."


async def ask(
    words: Sequence[str], timeout_s: float, environment: Mapping[str, str] = os.environ, given: bytes = b""
) -> Answer:
    """Start a program with this standard input, wait for its end, and give what it has printed.

    A program that takes longer than `timeout_s` or prints more than MOST_BYTES is killed with
    everything that it has started.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.PIPE if given else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**without_ranks(environment), **LOCALE},
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        missing = isinstance(error, FileNotFoundError)
        return Answer(None, "", f"{words[0]} cannot be started: {why}", started=False, missing=missing)
    try:
        async with asyncio.timeout(timeout_s):
            # Together: a program whose output nobody reads may stop reading its input.
            _, output, errors = await asyncio.gather(
                _write(process, given), _read(process, process.stdout), _read(process, process.stderr)
            )
            code = await process.wait()
    except TimeoutError:
        return Answer(None, errors=f"{words[0]} has given no answer within {timeout_s:g} s")
    finally:
        if process.returncode is None:
            await _end(process)
    if output is None or errors is None:
        return Answer(None, errors=f"{words[0]} has printed more than {MOST_BYTES >> 20} MiB")
    return Answer(code, output.decode(errors="replace"), errors.decode(errors="replace"))


def ask_and_wait(
    words: Sequence[str], timeout_s: float, environment: Mapping[str, str] = os.environ, given: bytes = b""
) -> Answer:
    """Ask as `ask` does, for callers without an event loop or that may hold theirs up this long."""
    found: list[Answer] = []

    def run() -> None:
        found.append(asyncio.run(ask(words, timeout_s, environment, given)))

    # In a thread, since a thread has one event loop at most. An interruption does not wait for it.
    thread = threading.Thread(target=run, name=f"asks {words[0]}", daemon=True)
    thread.start()
    thread.join()
    return found[0] if found else Answer(None, errors=f"{words[0]} could not be asked")


async def _write(process: asyncio.subprocess.Process, given: bytes) -> None:
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            process.stdin.write(given)
            await process.stdin.drain()
        process.stdin.close()


async def _read(process: asyncio.subprocess.Process, stream: asyncio.StreamReader | None) -> bytes | None:
    """All of an output, or None if it is more than MOST_BYTES, for which the program is killed."""
    assert stream is not None
    found = bytearray()
    while part := await stream.read(2**16):
        if len(found) > MOST_BYTES:  # read to its end nevertheless: until then the pipe stays open
            continue
        found += part
        if len(found) > MOST_BYTES:
            _kill(process)
    return bytes(found) if len(found) <= MOST_BYTES else None


def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill a program, and wait until it and its pipes have ended."""
    _kill(process)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(KILL_TIMEOUT_S):
            await asyncio.gather(process.wait(), _read(process, process.stdout), _read(process, process.stderr))
