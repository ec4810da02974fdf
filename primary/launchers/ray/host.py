"""`python -m primary.launchers.ray.host`: runs the replicas of a node for the actor there."""

import asyncio
import contextlib
import itertools
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from aiperf.errors import LaunchError
from aiperf.host import this_host
from aiperf.processes import end_group
from aiperf.storage.patience import may_pass
from primary.launchers.contract import ReplicaSpec
from primary.launchers.pipes import start_child
from primary.launchers.ray.calls import CHUNK_BYTES, serve

GRACE_S = 5.0


class NodeCommands:
    """The commands on this node, by number."""

    def __init__(self) -> None:
        self._children: dict[int, asyncio.subprocess.Process] = {}
        self._numbers = itertools.count()

    async def start(
        self, replica: int, command: Sequence[str], log: str, environment: dict[str, str], folder: str
    ) -> int:
        """Start a command, in `folder` if there is one. Raises LaunchError."""
        spec = ReplicaSpec(replica, tuple(command), Path(log), environment)
        try:
            await asyncio.to_thread(spec.log.parent.stat)
        except OSError as error:
            raise LaunchError(
                f"cannot start replica {replica}: node {this_host().name()} has no {spec.log.parent} "
                f"({error.strerror}); the output directory must be on a file system that all nodes share",
                restart=may_pass(error),
            ) from error
        with contextlib.suppress(OSError):
            os.chdir(folder)
        number = next(self._numbers)
        self._children[number] = await start_child(spec, list(command), environment)
        return number

    async def read(self, child: int) -> bytes:
        """Read the next output of a child; b"" at its end."""
        stream = self._children[child].stdout
        assert stream is not None
        return await stream.read(CHUNK_BYTES)

    async def write(self, child: int, data: bytes) -> None:
        """Write to its standard input; does nothing once it has ended."""
        stream = self._children[child].stdin
        assert stream is not None
        with contextlib.suppress(ConnectionError):
            stream.write(data)
            await stream.drain()

    async def wait(self, child: int) -> int:
        """Wait for the end of a child, and return its exit code."""
        return await self._children[child].wait()

    async def cancel(self, child: int, grace_s: float) -> int:
        """Terminate its group, kill what is left after `grace_s`; its exit code."""
        return await end_group(self._children[child], grace_s)

    async def end(self) -> None:
        """End all commands and their children."""
        await asyncio.gather(*(end_group(child, GRACE_S) for child in self._children.values()))


async def _serve() -> None:
    output = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    host = NodeCommands()
    await serve(output, {call.__name__: call for call in (host.start, host.read, host.write, host.wait, host.cancel)})
    await host.end()


def _drop_additions() -> None:
    """Drop what Ray adds for its own workers: OMP_NUM_THREADS is the number of all CPUs there."""
    try:
        given = Path(f"/proc/{os.environ['RAY_RAYLET_PID']}/environ").read_bytes().split(b"\0")
    except (KeyError, OSError):
        return
    names = {entry.partition(b"=")[0] for entry in given}
    for name in ("OMP_NUM_THREADS", "PYTHONBREAKPOINT"):
        if name.encode() not in names:
            os.environ.pop(name, None)


if __name__ == "__main__":
    # Ray kills the children of an actor that ends; this one must outlive it, to end the replicas.
    if os.fork():
        os._exit(0)
    _drop_additions()
    asyncio.run(_serve())
