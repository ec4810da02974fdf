"""Replicas on other machines by ssh, one connection each."""

import asyncio
import contextlib
import logging
import os
import re
import shlex
import signal
from collections import defaultdict
from pathlib import Path

from aiperf.clock import Clock
from aiperf.config.placement import nodes_needed, nodes_of
from aiperf.config.settings import RunConfig
from aiperf.errors import LaunchError, MessageError, UsageError
from aiperf.processes import end_group, spawn
from aiperf.storage.logs import open_log
from aiperf.storage.patience import may_pass
from primary.allocations import allocation_of
from primary.launchers import pipes
from primary.launchers.contract import Exit, ReplicaProcess, ReplicaSpec
from primary.launchers.pipes import PipeProcess
from primary.launchers.talk import Talk
from primary.nodes import ssh_client
from slurm.hostlists import without

log = logging.getLogger(__name__)

CONNECTING_TO_A_HOST = 8
"""One sshd refuses further connections while too many are being set up (MaxStartups 10)."""

GROUP_PREFIX = b"aiperf-group "
EXIT_LINE = re.compile(rb"^aiperf-exit (\d+)$", re.MULTILINE)
# Without the first letters that ssh writes now large, now small.
LOST = re.compile(rb"closed by|onnection reset|disconnect|Broken pipe|not responding|imed out|unreachable")
"""Words of ssh about a connection that it has lost."""

SIGNAL_EXIT = 128
SIGNALS = 65

LOGGED_BYTES = 1 << 20
"""Upper limit for the bytes that the replica's log keeps of a host's shell (its standard error)."""

TAIL_BYTES = 1 << 13
COMMAND_S = 20.0
END_S = 5.0


class SshLauncher:
    """Starts replica i on host i, or on the hosts from i x replica.nodes on.

    Without `ssh.hosts` these are the hosts of the allocation that the primary is in.
    """

    def __init__(self, config: RunConfig, _clock: Clock) -> None:
        self._config = config
        self.per_node = config.replica.per_node
        needed = nodes_needed(config)
        try:
            client = ssh_client.client_name(config.ssh)
        except LaunchError as error:
            raise UsageError(str(error)) from None
        log.info("ssh client: %s", client)
        allocation = allocation_of(config, os.environ)
        self._hosts = allocation.hosts if allocation else without(config.ssh.hosts, config.run.exclude)
        if len(self._hosts) < needed:
            raise UsageError(
                f"ssh.hosts names {len(self._hosts)} host(s){' that are not excluded' if config.run.exclude else ''}; "
                f"{config.run.replicas} replica(s) need {needed}"
            )
        wrong = [host for host in self._hosts if "@" in host or re.search(r"[^:]:\d+$", host)]
        if config.replica.nodes > 1 and wrong:
            raise UsageError(
                f"ssh.hosts: {wrong[0]} names a user or a port, which mpirun on the first node of a replica cannot be "
                "told (replica.nodes > 1); name the host alone, with User and Port in the ~/.ssh/config of the nodes"
            )
        self._connecting = asyncio.Semaphore(config.launch.parallel)
        self._to_host = defaultdict[str, asyncio.Semaphore](lambda: asyncio.Semaphore(CONNECTING_TO_A_HOST))

    async def start(self, spec: ReplicaSpec) -> ReplicaProcess:
        """Start a replica.

        Raises LaunchError: host unknown, key refused, no connection, no such program.
        """
        hosts = nodes_of(spec.replica, self._config, self._hosts)
        # The host's turn first: a replica that waits for its host keeps no other one from
        # connecting.
        async with self._to_host[hosts[0]], self._connecting:
            await asyncio.to_thread(ssh_client.check_jumps, hosts[0], self._config.ssh)
            script = remote_script(spec, await asyncio.to_thread(self._addresses, hosts))
            process = SshProcess(spec, hosts[0], self._config, self._to_host[hosts[0]])
            try:
                await process.begin(script)
            except BaseException:
                await process.abandon()
                raise
        return process

    def _addresses(self, hosts: tuple[str, ...]) -> tuple[str, ...]:
        """The hosts of a replica as its first node can name them: ~/.ssh/config is our own."""
        if len(hosts) == 1:
            return hosts
        targets = [ssh_client.find_target(host, self._config.ssh) for host in hosts]
        return tuple(target.host if target.port == ssh_client.DEFAULT_PORT else target.name for target in targets)


def remote_script(spec: ReplicaSpec, hosts: tuple[str, ...]) -> bytes:
    """Write the script of a POSIX shell that names its process group and runs the replica.

    sshd makes the login shell the leader of a session, so its group is that of everything that it
    starts. The shell ignores the signal that ends the group, and reports the exit code of the
    replica, because ssh alone reports its own failure by the same number.
    """
    # Fields 1 to 5 of /proc/PID/stat end with the process group (proc(5)). The trap has a command:
    # a signal that the shell ignored (`trap ''`) would stay ignored in the replica.
    further = ("--hosts", ",".join(hosts)) if len(hosts) > 1 else ()
    variables = [f"{name}={value}" for name, value in spec.environment.items()]
    command = shlex.join(["env", *variables, *spec.command, *further])
    log, folder = shlex.quote(str(spec.log.absolute())), shlex.quote(os.getcwd())  # noqa: PTH109
    return (
        # The lines that are looked for begin anew, whatever was printed before them. The replica's
        # standard error is its log, and ssh's stays open as 3 for the line of the exit.
        "read -r a b c d group e </proc/$$/stat || group=$$\n"
        f"echo; echo {GROUP_PREFIX.decode()}$group; exec 3>&2 2>>{log}\n"
        f"cd {folder} 2>/dev/null; trap : TERM\n"
        f"{command} 3>&-\n"
        "code=$?; printf '\\naiperf-exit %s\\n' $code >&3; exit $code\n"
    ).encode(errors="surrogateescape")


class SshProcess(PipeProcess):
    """A replica behind the program of an ssh client."""

    def __init__(self, spec: ReplicaSpec, host: str, config: RunConfig, connecting: asyncio.Semaphore) -> None:
        """`connecting` bounds the connections to the host that are being set up at once."""
        self._spec = spec
        self._host = host
        self._connecting = connecting
        self._settings = config.ssh
        self._ssh: list[str] = []
        self._group: int | None = None
        self._said = b""
        """The end of what came on standard error: of the host's shell, then of ssh itself."""
        self._said_bytes = 0
        self._pump: asyncio.Task[None] | None = None
        self._exit: Exit | None = None

    async def begin(self, script: bytes) -> None:
        """Start the script. Raises LaunchError if the host refuses, or its shell hangs."""
        # Once, and in a thread: the client is looked for in the folders of the PATH.
        self._ssh = await asyncio.to_thread(ssh_client.ssh_command, self._host, self._settings)
        try:
            process = await spawn([*self._ssh, ssh_client.in_posix_shell(script)], None)
        except OSError as error:
            reason = f"{self._host}: ssh cannot be started: {error.strerror}"
            raise LaunchError(reason, restart=may_pass(error)) from error
        super().__init__(process)
        self._pump = asyncio.create_task(self._read_errors())
        try:
            async with asyncio.timeout(pipes.HUNG_START_S):
                await self.send(script)
                await self._await_group()
        except TimeoutError:
            reason = f"{self._host}: its shell did not start the replica within {pipes.HUNG_START_S:.0f} s"
            raise LaunchError(f"{reason}; do its start files wait for something?", restart=True) from None

    async def _await_group(self) -> None:
        """Read up to the line of the group: start files of the host's shell may talk before it."""
        talk = Talk(self._spec.log)
        while True:
            try:
                line = await self.receive()
            except MessageError:  # a line without an end, of a start file
                continue
            if line.startswith(GROUP_PREFIX):
                self._group = int(line.removeprefix(GROUP_PREFIX))
                return
            if not line:
                raise await self._refusal()
            await asyncio.to_thread(talk.hear, line)

    async def _refusal(self) -> LaunchError:
        code = await self._end()
        said = self._said.decode(errors="replace")
        if code == ssh_client.FAILED:
            reason = await asyncio.to_thread(ssh_client.explained, self._host, self._settings, said)
            return LaunchError(reason, restart=any(word in said for word in ssh_client.PASSING))
        last = said.strip().splitlines()[-1:] or ["no answer"]
        return LaunchError(f"{self._host}: its shell did not start the replica: {last[0]}")

    async def _read_errors(self) -> None:
        assert self._process.stderr is not None
        while data := await self._process.stderr.read(1 << 16):
            room = LOGGED_BYTES - self._said_bytes
            self._said_bytes += len(data)
            self._said = (self._said + data)[-TAIL_BYTES:]
            if room > 0:
                await asyncio.to_thread(self._log, EXIT_LINE.sub(b"", data[:room]))

    def _log(self, data: bytes) -> None:
        with contextlib.suppress(OSError), open_log(self._spec.log) as stream:
            stream.write(data)

    async def _end(self) -> int:
        """Wait for ssh and for all that it says."""
        code = await self._process.wait()
        if self._pump is not None:
            await asyncio.wait({self._pump}, timeout=END_S)
        return code

    async def wait(self) -> Exit:
        """Wait for its end; the exit has no code if the connection was lost first."""
        if self._exit is None:
            self._exit = await self._find_exit()
        return self._exit

    async def _find_exit(self) -> Exit:
        code = await self._end()
        if found := EXIT_LINE.search(self._said):
            code = int(found[1])
            return Exit(SIGNAL_EXIT - code if SIGNAL_EXIT < code < SIGNAL_EXIT + SIGNALS else code)
        # The shell was killed with its group, of which ssh says nothing; or the connection is lost.
        return Exit(-signal.SIGKILL) if code == ssh_client.FAILED and not LOST.search(self._said) else Exit(None)

    async def explain(self) -> str:
        """The name of its host."""
        return f"host {self._host}"

    async def cancel(self, grace_s: float) -> Exit:
        """Terminate its group, kill what is left after `grace_s`, and close the connection."""
        # Signalled once: when the group is gone, its number may become another's.
        group, self._group = self._group, None
        if group is None:
            # If the first attempt was cancelled in its middle, ssh is still there, for as long as
            # its keep-alives take.
            await end_group(self._process, grace_s)
            return await self.wait()
        assert self._process.stdin is not None
        # The end of its input ends an agent in order. The signals are for one that does not hear
        # it.
        self._process.stdin.close()
        await self._signal("TERM", group)
        ended = asyncio.ensure_future(self._process.wait())
        await asyncio.wait({ended}, timeout=grace_s)
        await self._signal("KILL", group)
        await asyncio.wait({ended}, timeout=END_S)
        await end_group(self._process, END_S)
        ended.cancel()
        return await self.wait()

    async def abandon(self) -> None:
        """End an ssh that has not started its replica."""
        # `begin` may have been cancelled before there was an ssh.
        if hasattr(self, "_process"):
            await end_group(self._process, 0.0)

    async def _signal(self, name: str, group: int) -> None:
        """Send a signal to the group, over another connection."""
        command = [*self._ssh, f"exec /bin/sh -c 'kill -s {name} -- -{group} 2>/dev/null'"]
        # A connection of its own: the replica's may be lost while the host is alive.
        async with self._connecting:
            with contextlib.suppress(OSError):
                process = await spawn(command, Path(os.devnull))
                await asyncio.wait({asyncio.ensure_future(process.wait())}, timeout=COMMAND_S)
                await end_group(process, 0.0)
