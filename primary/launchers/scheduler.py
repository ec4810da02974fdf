"""Replicas on the hosts of an allocation, started by its scheduler's own remote starter."""

import asyncio
import os
import sys
from functools import partial
from pathlib import Path

from aiperf.clock import Clock
from aiperf.config.placement import nodes_of
from aiperf.config.settings import RunConfig
from aiperf.errors import LaunchError
from aiperf.processes import end_group
from aiperf.storage.patience import may_pass, with_patience
from primary.allocations import Allocation, allocation_of
from primary.launchers import pipes
from primary.launchers.contract import Launcher, ReplicaProcess, ReplicaSpec
from primary.launchers.pipes import start_child
from primary.launchers.relays.process import STARTER_GRACE_S, RelayedProcess
from primary.launchers.relays.remote_starters import REMOTE_STARTERS, RemoteCommand
from primary.launchers.relays.rendezvous import Channel, Rendezvous
from primary.launchers.relays.task import interpreter, is_this_host, remove_task, write_task
from primary.launchers.slurm import SlurmLauncher


def open_scheduler_launcher(config: RunConfig, clock: Clock) -> Launcher:
    """The launcher for the allocation that this process is in.

    Raises UsageError without one or if it is too small, EnvironmentNotReadyError if its variables
    do not describe it.
    """
    allocation = allocation_of(config, os.environ)
    assert allocation is not None, "a run with this launcher has one"
    return SlurmLauncher(config, clock) if allocation.scheduler == "SLURM" else SchedulerLauncher(config, allocation)


class SchedulerLauncher:
    """Starts replica i on host i, or on the hosts from i x replica.nodes on."""

    def __init__(self, config: RunConfig, allocation: Allocation) -> None:
        self._config = config
        self._allocation = allocation
        self._starter = REMOTE_STARTERS[allocation.scheduler]
        # Starters that have not reached their hosts: each may hold an open port.
        self._starting = asyncio.Semaphore(config.launch.parallel)
        self.per_node = config.replica.per_node

    async def start(self, spec: ReplicaSpec) -> ReplicaProcess:
        """Start a replica.

        Raises LaunchError naming the starter that cannot be started, or why there is no relay.
        """
        async with self._starting:
            rendezvous = None if self._starter.forwards_input else Rendezvous()
            try:
                if rendezvous is not None:
                    await rendezvous.open()
                return await self._start(spec, rendezvous)
            except OSError as error:
                reason = f"cannot start replica {spec.replica}: {error}"
                raise LaunchError(reason, restart=may_pass(error)) from error
            finally:
                if rendezvous is not None:
                    rendezvous.close()

    async def _start(self, spec: ReplicaSpec, rendezvous: Rendezvous | None) -> ReplicaProcess:
        hosts = nodes_of(spec.replica, self._config, self._allocation.hosts)
        further = ("--hosts", ",".join(hosts)) if len(hosts) > 1 else ()
        own = await asyncio.to_thread(is_this_host, hosts[0])  # which may ask a name server
        write = partial(write_task, spec, (*spec.command, *further), rendezvous, own)
        # A file of the run directory: it may have to wait, and not in the event loop.
        task = await asyncio.to_thread(with_patience, write, spec.log.parent)
        directly = own and not self._starter.own_host
        try:
            child = await start_child(spec, self._command(hosts[0], task, directly), {})
            channel = await self._channel(child, rendezvous)
        except BaseException:
            await remove_task(task)
            raise
        program = "this process" if directly else self._starter.program
        hint = f"; {self._starter.hint}" if self._starter.hint and program == self._starter.program else ""
        description = f"host {hosts[0]} of {self._allocation.title}, started by {program}{hint}"
        return RelayedProcess(child, channel, task, description)

    def _command(self, host: str, task: Path, directly: bool) -> list[str]:
        """The words of a starter, or those of a relay that is a child of this process."""
        # Isolated and without site: only the standard library, whatever is set on the node.
        relay = (*interpreter(self._config.environment, sys.executable), "-I", "-S", str(task))
        if directly:
            return list(relay)
        request = RemoteCommand(self._allocation, host, self.per_node, relay)
        return [self._starter.program, *self._starter.words(request)]

    async def _channel(self, child: asyncio.subprocess.Process, rendezvous: Rendezvous | None) -> Channel | None:
        if rendezvous is None:
            assert child.stdout is not None
            assert child.stdin is not None
            return child.stdout, child.stdin
        try:
            async with asyncio.timeout(pipes.HUNG_START_S):
                return await rendezvous.arrival(child)
        except BaseException as error:
            # Also when cancelled: nothing else knows this child yet.
            await end_group(child, STARTER_GRACE_S)
            if isinstance(error, TimeoutError):
                late = f"{self._starter.program} has started no relay within {pipes.HUNG_START_S:.0f} s"
                raise LaunchError(late, restart=True) from None
            raise
