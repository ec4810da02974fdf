"""Replicas as processes of this machine, each in a session of its own."""

from __future__ import annotations

import asyncio
import contextlib

from aiperf.errors import LaunchError, MessageError
from aiperf.processes import end_group, spawn
from primary.launchers.contract import ReplicaProcess, ReplicaSpec


class LocalProcess:
    """A replica on this machine."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def send(self, data: bytes) -> None:
        """Write to its standard input; nothing happens once it is gone."""
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):
            self._process.stdin.write(data)
            await self._process.stdin.drain()

    async def receive(self) -> bytes:
        """The next line of its standard output, b"" at its end. Raises MessageError on an endless line."""
        assert self._process.stdout is not None
        try:
            return await self._process.stdout.readline()
        except ValueError as error:
            raise MessageError(f"the replica sent an endless line: {error}") from None

    async def wait(self) -> int:
        """Exit code; minus the signal number where a signal ended it."""
        return await self._process.wait()

    async def cancel(self, grace_s: float) -> int:
        """Terminate its group, kill what is left after `grace_s`."""
        return await end_group(self._process, grace_s)


class LocalLauncher:
    """Starts replicas on this machine."""

    async def start(self, spec: ReplicaSpec) -> ReplicaProcess:
        """Start a replica. Raises LaunchError naming the program that cannot be started."""
        try:
            return LocalProcess(await spawn(spec.command, spec.log, spec.environment))
        except OSError as error:
            raise LaunchError(f"cannot start replica {spec.replica}: {spec.command[0]}: {error.strerror}") from error
