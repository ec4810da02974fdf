"""A Ray cluster, and the actors on its nodes: everything that imports Ray."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import socket
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from aiperf.errors import LaunchError
from primary.launchers.ray.actor import NodeActor
from primary.launchers.ray.nodes import Node
from primary.launchers.ray.owners import others_cluster

REACH_TIMEOUT_S = 20.0


def connect(address: str) -> None:
    """Connect to a cluster, never start one. Raises LaunchError."""
    if address == "auto" and not os.environ.get("RAY_ADDRESS") and (found := others_cluster()):
        raise LaunchError(
            f"ray.address = 'auto' could join the Ray cluster of another user, who could then run programs as you: "
            f"{found}; name your own: --set ray.address=HOST:6379"
        )
    try:
        _reach(address)
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, ValueError, RuntimeError, RayError) as error:
        raise LaunchError(
            f"cannot connect to the Ray cluster at ray.address = {address!r}: {_first_line(error)}; on the first node: "
            "ray start --head, on the others: ray start --address=HOST:6379, and run the primary on one of them"
        ) from None


def _reach(address: str) -> None:
    """Raise OSError if nothing listens at an address: Ray itself tries for minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), REACH_TIMEOUT_S).close()


def disconnect() -> None:
    """Leave the cluster; the actors end."""
    ray.shutdown()


def find_nodes() -> list[Node]:
    """The nodes that are alive, by address. Raises ConnectionError if the cluster is gone."""
    found = [_described(node) for node in _all_nodes() if node["Alive"]]
    return [node for _, node in sorted(found, key=lambda pair: (pair[0], pair[1].id))]


def why_dead(node: Node) -> str:
    """The reason of a node's death according to Ray; empty if it is alive."""
    with contextlib.suppress(ConnectionError):
        for found in _all_nodes():
            if found["NodeID"] == node.id and not found["Alive"]:
                return str(found.get("DeathReasonMessage") or "its death was noticed, the reason is not known")
    return ""


def _all_nodes() -> list[dict[str, Any]]:
    try:
        return list(ray.nodes())
    except RayError as error:
        raise ConnectionError(f"the Ray cluster does not answer: {_first_line(error)}") from None


def _described(node: dict[str, Any]) -> tuple[tuple[int, str], Node]:
    address, resources = str(node["NodeManagerAddress"]), node["Resources"]
    try:
        order = int(ipaddress.ip_address(address))
    except ValueError:
        order = 0
    name = str(node.get("NodeManagerHostname") or address)
    title = name if name == address else f"{name}, {address}"
    return (order, address), Node(node["NodeID"], title, resources.get("CPU", 0.0), resources.get("GPU", 0.0))


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), "") or type(error).__name__


class Host:
    """An actor that has a whole node."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.lost = False
        self.is_ready = False
        actor: Any = ray.remote(NodeActor)
        self._actor = actor.options(
            num_cpus=node.cpus,
            num_gpus=node.gpus,
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
        ).remote()

    async def ready(self) -> None:
        """Wait until the actor runs. Raises ConnectionError if it cannot."""
        await self._ask(self._actor.ready.remote())
        self.is_ready = True

    async def call(self, method: str, **words: Any) -> Any:
        """The result of a call to the host process.

        Raises LaunchError if it refuses, ConnectionError if it, the actor or the node is lost.
        """
        result, refused = await self._ask(self._actor.call.remote(method, words))
        if refused is not None:
            raise LaunchError(refused)
        return result

    async def _ask(self, answer: Any) -> Any:
        if self.lost:
            raise ConnectionError(f"{self.node.title} is lost")
        try:
            return await answer
        except (RayError, ConnectionError) as error:
            if not self.lost:
                self.lost = True
                await asyncio.to_thread(self.end)
            if "ModuleNotFoundError" in str(error):
                raise ConnectionError(
                    "AIPerf is not installed for Ray's Python there; install the primary's version on all nodes"
                ) from None
            raise ConnectionError(_first_line(error)) from None

    def end(self) -> None:
        """End the actor, also if it waits for its node, or is on one that comes back later."""
        self.lost = True
        with contextlib.suppress(RayError):
            ray.kill(self._actor)
