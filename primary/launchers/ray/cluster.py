"""A Ray cluster, and the actors on its nodes: everything that imports Ray."""

import asyncio
import contextlib
import ipaddress
import logging
import os
import re
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import ray
from ray._private import state
from ray._private.accelerators import get_all_accelerator_resource_names
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from aiperf.answers import in_one_line
from aiperf.errors import LaunchError
from primary.launchers.ray.actor import NodeActor
from primary.launchers.ray.nodes import Node
from primary.launchers.ray.owners import others_cluster

REACH_TIMEOUT_S = 20.0
MOST_NAMED = 5


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
        why = reason_of(error)
        raise LaunchError(
            f"cannot connect to the Ray cluster at ray.address = {address!r}: {why}{remedy_of(why)}"
        ) from None


def _reach(address: str) -> None:
    """Raise OSError if nothing listens at an address: Ray itself tries for minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), REACH_TIMEOUT_S).close()


def disconnect() -> None:
    """Leave the cluster; the actors end."""
    ray.shutdown()


def find_nodes(resource: str = "") -> list[Node]:
    """The nodes that are alive, by address; `resource` names a further kind of accelerator.

    Raises ConnectionError if the cluster is gone.
    """
    named = get_all_accelerator_resource_names() | ({resource} if resource else set())
    found = [_described(node, named - {"GPU"}) for node in _all_nodes() if node["Alive"]]
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
        raise ConnectionError(f"the Ray cluster does not answer: {reason_of(error)}") from None


def _described(node: dict[str, Any], named: set[str]) -> tuple[tuple[int, str], Node]:
    address, resources = str(node["NodeManagerAddress"]), node["Resources"]
    try:
        # By number: as texts, 10.0.0.10 would come before 10.0.0.9.
        order = int(ipaddress.ip_address(address))
    except ValueError:
        order = 0
    name = str(node.get("NodeManagerHostname") or address)
    title = name if name == address else f"{name}, {address}"
    others = tuple((name, resources[name]) for name in sorted(named) if resources.get(name))
    return (order, address), Node(node["NodeID"], title, resources.get("CPU", 0.0), resources.get("GPU", 0.0), others)


def reason_of(error: BaseException) -> str:
    """Describe an error of Ray's in one line, with the remedy that is known to fit."""
    why = in_one_line(str(error)) or type(error).__name__
    if re.search(r"No module named '(aiperf|primary)\b", why):
        return f"AIPerf is not installed for Ray's Python there; install the primary's version on all nodes ({why})"
    return why


def remedy_of(why: str) -> str:
    """Say what helps against a connection that failed for this reason; empty if that is unknown."""
    if "Version mismatch" in why:
        return "; run the primary with the cluster's versions of Ray and Python"
    token = Path(os.environ.get("RAY_AUTH_TOKEN_PATH", "~/.ray/auth_token")).expanduser()
    if re.search(r"auth\w*token|unauthenticated|failed to connect to gcs", why, re.IGNORECASE) and token.exists():
        return f"; does the cluster know the token in {token}? Another cluster may have written it"
    if re.search(r"refused|timed out|not known|could not find any running|failed to connect|no route", why, re.I):
        return (
            "; on the first node: ray start --head, on the others: ray start --address=HOST:6379, and run the "
            "primary on one of them"
        )
    return ""


def state_in_words(actor: Mapping[str, Any], others: Iterable[Mapping[str, Any]], node: Node) -> str:
    """Explain why an actor does not run yet, by its row of Ray's table and those of all actors."""
    if actor.get("State") == "DEPENDENCIES_UNREADY":
        return "Ray waits for what its actor depends on"
    if actor.get("Address", {}).get("IPAddress"):
        return f"Ray is still creating its actor there (process {actor.get('Pid')}); is the file system slow?"
    holding = [
        f"{other['ActorClassName']} of job {other['JobID']}"
        for other in others
        if other["State"] == "ALIVE" and other["Address"]["NodeID"] == node.id
    ]
    if holding:
        return f"other work holds CPUs or GPUs of {node.title}: {', '.join(sorted(set(holding))[:MOST_NAMED])}"
    return f"its actor is pending: {node.title} lacks free resources (of tasks or placement groups), or starts slowly"


class HeldNode:
    """A whole node, which an actor of this run has."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.lost = False
        self.why = ""
        """The reason of its loss, according to Ray."""
        self.is_ready = False
        actor: Any = ray.remote(NodeActor)
        self._actor = actor.options(
            num_cpus=node.cpus,
            num_gpus=node.gpus,
            resources=dict(node.others),
            # The primary decides about restarts: an actor that Ray started anew would have none of
            # its replicas.
            max_restarts=0,
            max_task_retries=0,
            # Hard affinity: a replica that Ray moved to another node would share that with its own
            # replica.
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
            raise LaunchError(*refused)
        return result

    async def _ask(self, answer: Any) -> Any:
        if self.lost:
            raise ConnectionError(f"{self.node.title} is lost")
        try:
            return await answer
        except (RayError, ConnectionError) as error:
            if not self.lost:
                self.lost, self.why = True, reason_of(error)
                await asyncio.to_thread(self.end)
            raise ConnectionError(reason_of(error)) from None

    def state(self) -> str:
        """Explain why its actor does not run yet, according to Ray."""
        # Ray's public listing of actors asks the dashboard, which a cluster need not have.
        try:
            every = dict(state.actors())
            return state_in_words(every.get(self._actor._actor_id.hex(), {}), every.values(), self.node)
        except (RayError, RuntimeError, KeyError, AttributeError):
            return f"{self.node.title} has not started its actor"

    def end(self) -> None:
        """End the actor, also if it waits for its node, or is on one that comes back later."""
        self.lost = True
        with contextlib.suppress(RayError):
            ray.kill(self._actor)
