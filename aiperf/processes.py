"""Child processes in sessions of their own: output kept, and the whole group ended, never only its head."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from aiperf.messages import MAX_LINE_BYTES

LOG_TAIL_BYTES = 4000


async def spawn(
    command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> asyncio.subprocess.Process:
    """Start a command with pipes for standard input and output; standard error is appended to `log`.

    Raises OSError where the program or the log cannot be opened.
    """
    with log.open("ab") as stream:
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=stream,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
            limit=MAX_LINE_BYTES,
        )


async def end_group(process: asyncio.subprocess.Process, grace_s: float) -> int:
    """Terminate the process group, wait for `grace_s`, then kill it. Gives the exit code."""
    if process.returncode is None:
        _signal_group(process.pid, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), grace_s)
    # Also after an orderly exit: children of the head may still be there.
    _signal_group(process.pid, signal.SIGKILL)
    return await process.wait()


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def describe_exit(code: int) -> str:
    """An exit code in words: "exit code 1" or "killed by SIGKILL"."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def last_lines(log: Path, lines: int = 3) -> str:
    """The last lines of a log, for a message; empty where there is none."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - LOG_TAIL_BYTES))
            text = stream.read().decode(errors="replace")
    except OSError:
        return ""
    return " | ".join([line.strip() for line in text.splitlines() if line.strip()][-lines:])
