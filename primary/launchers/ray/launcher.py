"""Replicas on the nodes of a Ray cluster, through a driver process."""

import asyncio
import contextlib
import os
from pathlib import Path
from typing import Any

from aiperf.clock import Clock
from aiperf.config.placement import nodes_needed
from aiperf.config.settings import RunConfig
from aiperf.errors import LaunchError, MessageError, UsageError
from aiperf.processes import last_lines, python_module
from aiperf.wire.lines import MAX_LINE_BYTES
from primary.launchers.contract import Exit, ReplicaProcess, ReplicaSpec
from primary.launchers.ray.calls import CHUNK_BYTES, Callee

LOG = "ray.log"
"""The driver's standard error, next to the logs of the replicas."""

CANCEL_TIMEOUT_S = 20.0
"""Seconds for an answer from a node, in addition to the time that the node gives the replica."""


class RayLauncher:
    """Starts replica i on node i, or on the nodes in turn, `replica.per_node` on each."""

    def __init__(self, config: RunConfig, _clock: Clock) -> None:
        if config.replica.nodes > 1:
            raise UsageError(
                f"replica.nodes is {config.replica.nodes}: with run.launcher = 'ray' a replica has one node; "
                "use --launcher slurm or ssh for replicas of several nodes"
            )
        variable = os.environ.get("RAY_ADDRESS", "") if config.ray.address == "auto" else ""
        address, name = (variable, "RAY_ADDRESS") if variable else (config.ray.address, "ray.address")
        if address == "local" or "://" in address:
            # "local" starts a cluster of its own, and leaves its token in the home.
            raise UsageError(
                f"{name} is {address!r}: 'auto' or HOST:PORT is allowed. Run the command on a node of the cluster, or "
                "submit it: ray job submit -- aiperf run --launcher ray ..."
            )
        self.per_node = config.replica.per_node
        self._config = config
        self._driver: Callee | None = None
        self._opening = asyncio.Lock()

    async def start(self, spec: ReplicaSpec) -> ReplicaProcess:
        """Start a replica as soon as its node is free.

        Raises LaunchError: no cluster, too few nodes, a node is taken, no such program.
        """
        log = spec.log.with_name(LOG).absolute()
        driver = await self._open(log)
        try:
            started = await driver.call(
                "start",
                replica=spec.replica,
                command=spec.command,
                log=str(spec.log.absolute()),
                environment=spec.environment,
                folder=os.getcwd(),  # noqa: PTH109
            )
        except ConnectionError as error:
            if driver.ended:
                raise LaunchError(f"Ray ended its driver process; end of {log}: {last_lines(log)}") from None
            raise LaunchError(f"cannot start replica {spec.replica}: {error}", restart=True) from None
        return RayProcess(driver, started)

    async def _open(self, log: Path) -> Callee:
        """The driver, which is started if there is none."""
        async with self._opening:
            if self._driver is None or self._driver.ended:
                ray = self._config.ray
                nodes = str(nodes_needed(self._config))
                words = (ray.address, str(ray.wait), nodes, str(self.per_node), ray.accelerator_resource or "")
                command = python_module("primary.launchers.ray.driver", *words)
                # In a thread: its log is a file of the run, for which it may wait.
                self._driver = await asyncio.to_thread(Callee, command, log)
            return self._driver


class RayProcess:
    """A replica behind the driver. Output is fetched when it is wanted: a flood stays there."""

    def __init__(self, driver: Callee, number: int) -> None:
        self._driver = driver
        self._number = number
        self._output = bytearray()
        self._reading: asyncio.Task[bytes] | None = None
        self._discarding: asyncio.Task[None] | None = None
        self._exit: Exit | None = None

    async def _call(self, method: str, **words: Any) -> Any:
        return await self._driver.call(method, number=self._number, **words)

    async def send(self, data: bytes) -> None:
        """Write to its standard input; does nothing once it has ended."""
        with contextlib.suppress(ConnectionError):
            for start in range(0, len(data), CHUNK_BYTES):
                await self._call("write", data=data[start : start + CHUNK_BYTES])

    async def receive(self) -> bytes:
        """The next line of its standard output, b"" at its end.

        Raises MessageError on an endless line.
        """
        if self._discarding is not None:
            await asyncio.shield(self._discarding)
        while (end := self._output.find(b"\n")) < 0:
            if len(self._output) > MAX_LINE_BYTES:
                self._output.clear()
                self._discarding = asyncio.create_task(self._discard())
                raise MessageError(f"the replica sent an endless line: more than {MAX_LINE_BYTES} bytes")
            if not (chunk := await self._read()):
                end = len(self._output) - 1  # the last line may have no end
                break
            self._output += chunk
        line = bytes(self._output[: end + 1])
        del self._output[: end + 1]
        return line

    async def _read(self) -> bytes:
        """The next piece of output; nothing is lost if the caller is cancelled meanwhile."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._ask_for_output())
        # Shielded, because the primary cancels a wait whose time is over, and asks again: the piece
        # that is on its way must not be lost.
        chunk = await asyncio.shield(self._reading)
        self._reading = None
        return chunk

    async def _discard(self) -> None:
        """Read to the end, since a process that cannot write its output does not end."""
        with contextlib.suppress(asyncio.CancelledError):
            while await self._read():
                pass

    async def _ask_for_output(self) -> bytes:
        try:
            return bytes(await self._call("read"))
        except (ConnectionError, asyncio.CancelledError):
            # A kept CancelledError would keep this replica, and with it the driver and the node.
            return b""

    async def wait(self) -> Exit:
        """Wait for its end; the exit has no code if its node or its actor was lost first."""
        if self._exit is None:
            found = await self._find_exit()
            # `cancel` may have given the replica up meanwhile.
            self._exit = self._exit or found
        return self._exit

    async def _find_exit(self) -> Exit:
        try:
            return Exit(await self._call("wait"))
        except ConnectionError:
            return Exit(None)

    async def explain(self) -> str:
        """Name the node, and the reason for its loss according to Ray."""
        try:
            return str(await self._call("explain"))
        except ConnectionError:
            return "Ray's driver process has ended"

    async def cancel(self, grace_s: float) -> Exit:
        """Terminate its group, kill what is left after `grace_s`."""
        try:
            async with asyncio.timeout(grace_s + CANCEL_TIMEOUT_S):
                with contextlib.suppress(ConnectionError):
                    await self._call("cancel", grace_s=grace_s)
                return await self.wait()
        except TimeoutError:
            self._exit = self._exit or Exit(None)
            return self._exit
