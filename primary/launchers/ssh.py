"""Replicas on other machines by ssh, one connection each."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any, TypeVar

import paramiko

from aiperf.clock import Clock
from aiperf.config.placement import nodes_needed, nodes_of
from aiperf.config.settings import RunConfig
from aiperf.errors import LaunchError, MessageError, UsageError
from aiperf.wire.lines import MAX_LINE_BYTES
from primary.allocations import allocation_of
from primary.launchers.contract import Exit, ReplicaProcess, ReplicaSpec
from primary.nodes.ssh_client import connect

_T = TypeVar("_T")

CONNECTING_TO_A_HOST = 8
"""One sshd refuses further connections while too many are being set up (MaxStartups 10)."""

GROUP_PREFIX = "aiperf-group "
SIGNAL_EXIT = 128
NO_STATUS = -1
"""paramiko's exit code if the connection was lost before the real one came."""


class SshLauncher:
    """Starts replica i on host i, or on the hosts from i x replica.nodes on.

    Without `ssh.hosts` these are the hosts of the allocation that the primary is in.
    """

    def __init__(self, config: RunConfig, _clock: Clock) -> None:
        self._config = config
        self.per_node = config.replica.per_node
        needed = nodes_needed(config)
        allocation = allocation_of(config, os.environ)
        self._hosts = allocation.hosts if allocation else config.ssh.hosts
        if len(self._hosts) < needed:
            raise UsageError(
                f"ssh.hosts names {len(config.ssh.hosts)} host(s); {config.run.replicas} replica(s) need {needed}"
            )
        self._connecting = asyncio.Semaphore(config.launch.parallel)
        self._to_host = defaultdict[str, asyncio.Semaphore](lambda: asyncio.Semaphore(CONNECTING_TO_A_HOST))

    async def start(self, spec: ReplicaSpec) -> ReplicaProcess:
        """Start a replica.

        Raises LaunchError: host unknown, key refused, no connection, no such program.
        """
        hosts = nodes_of(spec.replica, self._config, self._hosts)
        async with self._to_host[hosts[0]], self._connecting:
            client = await asyncio.to_thread(connect, hosts[0], self._config.ssh)
            process = SshProcess(client, hosts[0])
            try:
                await process.begin(remote_command(spec, hosts))
            except BaseException:
                client.close()
                raise
        return process


def remote_command(spec: ReplicaSpec, hosts: tuple[str, ...]) -> str:
    """The command of the remote shell, which prints its process group and runs the replica.

    sshd starts the shell as the leader of a session, so its process id is the group of everything
    that it starts. The shell ignores the signal that ends the group, and ends with the exit code of
    the replica.
    """
    further = ("--hosts", ",".join(hosts)) if len(hosts) > 1 else ()
    variables = [f"{name}={value}" for name, value in spec.environment.items()]
    command = shlex.join(["env", *variables, *spec.command, *further])
    log, folder = shlex.quote(str(spec.log.absolute())), shlex.quote(os.getcwd())  # noqa: PTH109
    return f"echo {GROUP_PREFIX}$$; exec 2>>{log}; cd {folder} 2>/dev/null; trap : TERM; {command}"


class SshProcess:
    """A replica behind a channel of its own connection. paramiko blocks, so a thread reads."""

    def __init__(self, client: paramiko.SSHClient, host: str) -> None:
        self._client = client
        self._host = host
        self._group: int | None = None
        self._reader = asyncio.StreamReader(limit=MAX_LINE_BYTES)
        self._channel: Any = None
        self._exit: Exit | None = None

    async def begin(self, command: str) -> None:
        """Start the command. Raises LaunchError if the host refuses."""
        try:
            self._channel = await asyncio.to_thread(self._open, command)
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise LaunchError(f"{self._host}: {error or type(error).__name__}") from None
        threading.Thread(target=self._read, args=(asyncio.get_running_loop(),), daemon=True).start()
        line = (await self.receive()).decode(errors="replace")
        if not line.startswith(GROUP_PREFIX):
            raise LaunchError(f"{self._host}: its shell did not start the replica: {line.strip() or 'no answer'}")
        self._group = int(line.removeprefix(GROUP_PREFIX))

    def _open(self, command: str) -> Any:
        transport = self._client.get_transport()
        if transport is None:
            raise paramiko.SSHException("the connection is closed")
        channel = transport.open_session()
        channel.exec_command(command)
        return channel

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: there is no reader any more
            try:
                while data := self._channel.recv(65536):
                    loop.call_soon_threadsafe(self._reader.feed_data, data)
            except (OSError, EOFError):
                pass  # the connection has ended, as below
            finally:  # whatever ends this thread: nobody waits for lines that cannot come
                loop.call_soon_threadsafe(self._reader.feed_eof)

    async def send(self, data: bytes) -> None:
        """Write to its standard input; does nothing once it has ended."""
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            await asyncio.to_thread(self._channel.sendall, data)

    async def receive(self) -> bytes:
        """The next line of its standard output, b"" at its end.

        Raises MessageError on an endless line.
        """
        try:
            return await self._reader.readline()
        except ValueError as error:
            raise MessageError(f"the replica sent an endless line: {error}") from None

    async def wait(self) -> Exit:
        """Wait for its end; the exit has no code if the connection was lost first."""
        if self._exit is None:
            self._exit = await self._find_exit()
        return self._exit

    async def explain(self) -> str:
        """The name of its host."""
        return f"host {self._host}"

    async def cancel(self, grace_s: float) -> Exit:
        """Terminate its group, kill what is left after `grace_s`, and close the connection."""
        if self._client.get_transport() is None:
            return await self.wait()
        with contextlib.suppress(OSError, EOFError):
            self._channel.shutdown_write()
        if self._group is not None:
            await self._run(f"kill -TERM -- -{self._group}")
            await _in_time(lambda: self._channel.status_event.wait(grace_s), grace_s + 1)
            await self._run(f"kill -KILL -- -{self._group}")
        end = await self.wait()
        self._client.close()
        return end

    async def _find_exit(self) -> Exit:
        code = await asyncio.to_thread(self._channel.recv_exit_status)
        if code != NO_STATUS:
            return Exit(SIGNAL_EXIT - code if code > SIGNAL_EXIT else code)
        # The shell was killed with its group, or the host cannot be asked any more.
        alive = await self._run("true") == 0
        return Exit(-signal.SIGKILL) if alive else Exit(None)

    async def _run(self, command: str) -> int | None:
        """The exit code of a short command on the host; None if the connection is lost."""

        def run() -> int | None:
            try:
                channel = self._open(command)
                return int(channel.recv_exit_status())
            except (paramiko.SSHException, OSError, EOFError):
                return None

        return await _in_time(run)


async def _in_time(work: Callable[[], _T | None], limit_s: float = 20.0) -> _T | None:
    try:
        async with asyncio.timeout(limit_s):
            return await asyncio.to_thread(work)
    except TimeoutError:
        return None
