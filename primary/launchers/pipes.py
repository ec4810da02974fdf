"""A replica behind a child process of the primary: the replica itself, or srun as its relay."""

import asyncio
import contextlib
import signal

from aiperf.errors import LaunchError, MessageError
from aiperf.processes import MemoryKills, end_group, spawn
from aiperf.storage.patience import may_pass
from primary.launchers.contract import Exit, ReplicaSpec

HUNG_START_S = 600.0
"""Longest time of a start that keeps one of the `launch.parallel` places: start files and prologs
take seconds. Not `run.start_timeout`, after which a late replica may still come."""


class PipeProcess:
    """Standard input and output are pipes; standard error is appended to the replica's log."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._kills = MemoryKills(process.pid)

    async def send(self, data: bytes) -> None:
        """Write to its standard input; does nothing once it has ended."""
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):
            self._process.stdin.write(data)
            await self._process.stdin.drain()

    async def receive(self) -> bytes:
        """The next line of its standard output, b"" at its end.

        Raises MessageError on an endless line.
        """
        assert self._process.stdout is not None
        try:
            return await self._process.stdout.readline()
        except ValueError as error:
            raise MessageError(f"the replica sent an endless line: {error}") from None

    async def wait(self) -> Exit:
        """Wait for its end."""
        return Exit(await self._process.wait())

    async def explain(self) -> str:
        """The probable cause of a SIGKILL; else the exit code is all that is known."""
        if self._process.returncode == -signal.SIGKILL and self._kills.have_grown():
            return "probably out of memory: the kernel has killed a process in its memory limit, or on the node"
        return ""

    async def cancel(self, grace_s: float) -> Exit:
        """Terminate its group, kill what is left after `grace_s`."""
        return Exit(await end_group(self._process, grace_s))


async def start_child(spec: ReplicaSpec, command: list[str], environment: dict[str, str]) -> asyncio.subprocess.Process:
    """Start the child. Raises LaunchError naming the program or log that cannot be opened."""
    try:
        return await spawn(command, spec.log, environment)
    except OSError as error:
        reason = f"cannot start replica {spec.replica}: {error.filename or command[0]}: {error.strerror}"
        raise LaunchError(reason, restart=may_pass(error)) from error
