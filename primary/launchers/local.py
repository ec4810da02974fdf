"""Replicas as processes of this machine, each in a session of its own."""

import asyncio

from aiperf.clock import Clock
from aiperf.config.settings import RunConfig
from primary.launchers.contract import ReplicaProcess, ReplicaSpec
from primary.launchers.pipes import PipeProcess, start_child


class LocalLauncher:
    """Starts all replicas on this machine, which they share."""

    def __init__(self, config: RunConfig, _clock: Clock) -> None:
        self.per_node = config.run.replicas
        self._starting = asyncio.Semaphore(config.launch.parallel)

    async def start(self, spec: ReplicaSpec) -> ReplicaProcess:
        """Start a replica. Raises LaunchError naming the program that cannot be started."""
        async with self._starting:
            return PipeProcess(await start_child(spec, list(spec.command), spec.environment))
