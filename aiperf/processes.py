"""Child processes in sessions of their own: output kept, and the whole group ended, never only its head."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

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


async def spawn_silent(
    command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> asyncio.subprocess.Process:
    """Start a command without standard input; all its output is appended to `log`. Raises OSError."""
    with log.open("ab") as stream:
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )


def peer_user(connection: socket.socket) -> int:
    """The user of the process at the other end of a local socket, as the kernel knows it."""
    layout = struct.Struct("3i")  # struct ucred: process, user, group
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, layout.size)
    return int(layout.unpack(data)[1])


def end_processes_with(word: str) -> int:
    """Kill every process of this user that has `word` in its command line; how many there were."""
    found = 0
    for process in psutil.process_iter(["cmdline", "uids"]):
        command, uids = process.info["cmdline"], process.info["uids"]
        if command and uids and uids.real == os.getuid() and any(word in argument for argument in command):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
                found += 1
    return found


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


def tail(log: Path, size_bytes: int) -> str:
    """The end of a log; empty where there is none."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - size_bytes))
            return stream.read().decode(errors="replace")
    except OSError:
        return ""


def last_lines(log: Path, lines: int = 3) -> str:
    """The last lines of a log, for a message; empty where there is none."""
    text = tail(log, LOG_TAIL_BYTES)
    return " | ".join([line.strip() for line in text.splitlines() if line.strip()][-lines:])
