"""`python -m primary.launchers.ray.driver`: Ray's driver process, which the primary calls."""

import asyncio
import itertools
import os
import sys
import threading
from typing import Any

from aiperf.clock import SystemClock
from aiperf.errors import LaunchError
from primary.launchers.ray import cluster
from primary.launchers.ray.calls import serve
from primary.launchers.ray.nodes import Placement

CONNECT_TIMEOUT_S = 120.0
SHUTDOWN_TIMEOUT_S = 5.0


class Driver:
    """The replicas of a run, by number, and the nodes that they are on."""

    def __init__(self, address: str, wait_s: float, placement: Placement, per_node: int, resource: str) -> None:
        self._address = address
        self._resource = resource
        self._wait_s = wait_s
        self._placement = placement
        self._per_node = per_node
        self._clock = SystemClock()
        self._connecting = asyncio.Lock()
        self._connected = False
        self._places: dict[int, asyncio.Lock] = {}
        self._hosts: dict[int, cluster.HeldNode] = {}
        self._replicas: dict[int, tuple[cluster.HeldNode, int]] = {}
        self._numbers = itertools.count()

    async def start(self, replica: int, **words: Any) -> int:
        """Start a replica on its node. Raises LaunchError, ConnectionError."""
        await self._connect()
        place = replica // self._per_node
        # One actor a place, though the replicas of a node are started at the same time.
        async with self._places.setdefault(place, asyncio.Lock()):
            if place not in self._hosts or self._hosts[place].lost:
                self._hosts[place] = await self._begin(place, replica)
        host = self._hosts[place]
        child = await host.call("start", replica=replica, **words)
        number = next(self._numbers)
        self._replicas[number] = (host, child)
        return number

    async def _connect(self) -> None:
        async with self._connecting:
            if self._connected:
                return
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    await asyncio.to_thread(cluster.connect, self._address)
            except TimeoutError:
                raise LaunchError(
                    f"no answer from the Ray cluster at ray.address = {self._address!r} within "
                    f"{CONNECT_TIMEOUT_S:.0f} s; ask it yourself: ray status"
                ) from None
            self._connected = True

    async def _begin(self, place: int, replica: int) -> cluster.HeldNode:
        """An actor on the node of a place, or on one that replaces it."""
        end_s = self._clock.monotonic_s() + self._wait_s
        while (
            node := self._placement.take(place, await asyncio.to_thread(cluster.find_nodes, self._resource))
        ) is None:
            if self._clock.monotonic_s() >= end_s:
                raise LaunchError(f"no node for replica {replica}: {self._placement.shortage()}")
            await self._clock.sleep(0.5)
        host = await asyncio.to_thread(cluster.HeldNode, node)
        try:
            async with asyncio.timeout(max(1.0, end_s - self._clock.monotonic_s())):
                await host.ready()
        except TimeoutError:
            why = await asyncio.to_thread(host.state)
            raise LaunchError(
                f"no free node for replica {replica} within {self._wait_s:.0f} s (ray.wait): {why}; "
                "`ray status` shows how much is taken, `ray list actors` by whom"
            ) from None
        except ConnectionError as error:
            raise LaunchError(f"cannot start replica {replica} on {node.title}: {error}", restart=True) from None
        finally:
            if not host.is_ready:
                await asyncio.to_thread(host.end)
        return host

    async def read(self, number: int) -> Any:
        """A piece of output."""
        return await self._pass_on("read", number)

    async def write(self, number: int, data: bytes) -> Any:
        """Write to the standard input."""
        return await self._pass_on("write", number, data=data)

    async def wait(self, number: int) -> Any:
        """The exit code, at the end."""
        return await self._pass_on("wait", number)

    async def cancel(self, number: int, grace_s: float) -> Any:
        """End a replica."""
        return await self._pass_on("cancel", number, grace_s=grace_s)

    async def explain(self, number: int) -> str:
        """The node of a replica and its state."""
        host = self._replicas[number][0]
        reason = await asyncio.to_thread(cluster.why_dead, host.node)
        if reason:
            return f"{host.node.title} is dead: {reason}"
        return f"{host.node.title}{f': {host.why}' if host.why else ''}"

    async def _pass_on(self, method: str, number: int, **words: Any) -> Any:
        host, child = self._replicas[number]
        return await host.call(method, child=child, **words)


async def _serve(output: int, *words: str) -> None:
    address, wait_s, nodes, per_node, resource = words
    driver = Driver(address, float(wait_s), Placement(int(nodes)), int(per_node), resource)
    calls = (driver.start, driver.read, driver.write, driver.wait, driver.cancel, driver.explain)
    await serve(output, {call.__name__: call for call in calls})


def _leave() -> None:
    """Leave the cluster, which ends the actors, and end whatever Ray's threads still do."""
    leaving = threading.Thread(target=cluster.disconnect, daemon=True)
    leaving.start()
    leaving.join(SHUTDOWN_TIMEOUT_S)
    os._exit(0)


if __name__ == "__main__":
    # Ray prints to standard output, which belongs to the answers.
    answers = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    loop = asyncio.new_event_loop()  # asyncio.run would wait for threads that Ray blocks
    loop.run_until_complete(_serve(answers, *sys.argv[1:]))
    _leave()
