"""Child processes in sessions of their own: output kept, and the whole group ended.

And their own side of the pipes.
"""

import asyncio
import contextlib
import os
import signal
import stat
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import psutil

from aiperf.errors import EnvironmentNotReadyError
from aiperf.host import this_host
from aiperf.ranks import without_ranks
from aiperf.signals import die_with_parent
from aiperf.storage.logs import open_log
from aiperf.wire.lines import MAX_LINE_BYTES, encode
from aiperf.wire.messages import Message

T = TypeVar("T")

LOG_TAIL_BYTES = 4000

KILL_TIMEOUT_S = 5.0
"""Longest wait for a killed process.

Holders of its pipes are waited for too, and may be beyond reach.
"""


SAFE_PATH = {"PYTHONSAFEPATH": "1"}
"""-P as an environment variable, for interpreters that other programs start (`horovodrun`)."""


def python_module(module: str, *words: str, python: str | None = None) -> tuple[str, ...]:
    """The command line of one of this program's modules; `python` is another node's interpreter.

    With -P, since `-m` alone puts the working directory first on the path: a user's `analysis.py`
    would be imported in place of ours.
    """
    return (python or sys.executable, "-P", "-m", module, *words)


def spawned(processes: int) -> ProcessPoolExecutor:
    """A pool of processes that end with this one, also if it is killed.

    Spawned, not forked: a fork of a process with threads may deadlock in their locks. Ctrl-C, which
    a terminal sends to all of them, ends the jobs at work, and those that wait.
    """
    return _Pool(processes, get_context("spawn"), initializer=_Worker.begin)


class _Pool(ProcessPoolExecutor):
    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        # A process that starts here inherits that Ctrl-C waits until it can heed it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return super().submit(_Worker.work, fn, *args, **kwargs)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.shutdown(cancel_futures=kind is not None)


class _Worker:
    """The state of a process of a pool: between jobs Ctrl-C would show where Python waits."""

    at_work = interrupted = False

    @classmethod
    def begin(cls) -> None:
        die_with_parent()
        signal.signal(signal.SIGINT, cls._interrupt)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

    @classmethod
    def _interrupt(cls, *_: object) -> None:
        cls.interrupted = True
        if cls.at_work:
            raise KeyboardInterrupt

    @classmethod
    def work(cls, job: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        cls.at_work = True
        try:
            # Ctrl-C came between two jobs, when there was nothing that it could end.
            if cls.interrupted:
                raise KeyboardInterrupt
            return job(*args, **kwargs)
        finally:
            cls.at_work = False


class MemoryKills:
    """Processes that the kernel kills for want of memory, in the limits of a process.

    If it has no limits, or has ended already, those of the whole node.
    """

    def __init__(self, process: int | str = "self") -> None:
        host = this_host()
        groups = host.control_groups("memory", process)
        counters = (group / name for group in groups for name in ("memory.events", "memory.oom_control"))
        self._counters = (*counters, host.root / "proc/vmstat")
        self._before = self._count()

    def have_grown(self) -> bool:
        """True if there were any since this object was made; False if the kernel does not say."""
        now = self._count()
        return now is not None and self._before is not None and now > self._before

    def _count(self) -> int | None:
        for path in self._counters:
            with contextlib.suppress(OSError):
                for line in path.read_text(encoding="ascii").splitlines():
                    name, _, number = line.partition(" ")
                    if name == "oom_kill" and number.isdecimal():
                        return int(number)
        return None


class MessageOutput:
    """Messages on the original standard output; all other output goes to standard error."""

    def __init__(self) -> None:
        self._descriptor = os.dup(sys.stdout.fileno())
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        self._whole = threading.Lock()

    def send(self, message: Message) -> None:
        """Write a message, in any thread.

        No-op if the reader is gone, since the end of the input reports that.
        """
        with self._whole, contextlib.suppress(BrokenPipeError):
            data = encode(message)
            while data:
                data = data[os.write(self._descriptor, data) :]


async def open_input() -> asyncio.StreamReader:
    """Standard input, to be read line by line.

    Raises EnvironmentNotReadyError if nothing can come by it.
    """
    # Python has no standard input if it was closed: another file may have its number by now.
    mode = 0 if sys.stdin is None else os.fstat(sys.stdin.fileno()).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or (mode and os.isatty(sys.stdin.fileno()))):
        raise EnvironmentNotReadyError(
            ["standard input is no pipe, by which the primary is heard: run a container with -i (docker run -i)"]
        )
    reader = asyncio.StreamReader(limit=MAX_LINE_BYTES)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


async def spawn(
    command: Sequence[str], log: Path | None, environment: Mapping[str, str] | None = None
) -> asyncio.subprocess.Process:
    """Start a command with pipes for input and output; standard error is appended to `log`.

    Without a log it is a pipe, too, and must be read. Raises OSError if the program or the log
    cannot be opened.
    """
    with contextlib.ExitStack() as opened:
        stream = asyncio.subprocess.PIPE if log is None else await asyncio.to_thread(open_log, log)
        if not isinstance(stream, int):
            opened.enter_context(stream)
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=stream,
            env={**without_ranks(), **SAFE_PATH, **(environment or {})},
            start_new_session=True,
            limit=MAX_LINE_BYTES,
        )


async def spawn_silent(
    command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> asyncio.subprocess.Process:
    """Start a command without standard input; all its output is appended to `log`.

    Raises OSError.
    """
    with await asyncio.to_thread(open_log, log) as stream:
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            env={**without_ranks(), **SAFE_PATH, **(environment or {})},
            start_new_session=True,
        )


def end_processes_with(word: str) -> None:
    """Kill every process of this user that has `word` in its command line, and wait for its end."""
    killed = []
    for process in psutil.process_iter(["cmdline", "uids"]):
        command, uids = process.info["cmdline"], process.info["uids"]
        if command and uids and uids.real == os.getuid() and any(word in argument for argument in command):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
                killed.append(process)
    # The memory of an accelerator is free only when they are gone.
    psutil.wait_procs(killed, timeout=KILL_TIMEOUT_S)


def cpu_seconds_of(pid: int) -> float | None:
    """CPU time of a process and of those that it started and that still run; None if it is gone."""
    try:
        first = psutil.Process(pid)
        total = sum(sum(each.cpu_times()[:2]) for each in [first, *first.children(recursive=True)])
    except psutil.Error:  # one of them may end meanwhile
        return None
    return float(total)


async def end_group(process: asyncio.subprocess.Process, grace_s: float) -> int:
    """Terminate the group of a spawned process, wait for `grace_s`, then kill its session.

    Gives the exit code.
    """
    ended = asyncio.ensure_future(process.wait())
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGTERM)
        await asyncio.wait({ended}, timeout=grace_s)
    # Also after an orderly exit: children of the head may still be there, some in groups of their
    # own, as salloc's are.
    end_sessions([process.pid])
    await asyncio.wait({ended}, timeout=KILL_TIMEOUT_S)
    ended.cancel()
    return -signal.SIGKILL if process.returncode is None else process.returncode


def end_sessions(leaders: Collection[int]) -> None:
    """Kill every process of these sessions, also of those whose leader has ended."""
    # The kernel signals groups, not sessions: every process is asked for its own.
    for number in psutil.pids():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getsid(number) in leaders:
                os.kill(number, signal.SIGKILL)


def describe_exit(code: int) -> str:
    """An exit code in words: "exit code 1" or "killed by SIGKILL"."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def tail(log: Path, size_bytes: int) -> str:
    """The end of a log; empty if there is none."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - size_bytes))
            return stream.read().decode(errors="replace")
    except OSError:
        return ""


def last_lines(log: Path, lines: int = 3) -> str:
    """The last lines of a log, for a message; empty if there is none."""
    text = tail(log, LOG_TAIL_BYTES)
    return " | ".join([line.strip() for line in text.splitlines() if line.strip()][-lines:])
