"""The placement of replicas on the nodes of a Ray cluster."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Node:
    """A node that is alive, and all that it has."""

    id: str
    name: str
    cpus: float
    gpus: float
    others: tuple[tuple[str, float], ...] = ()
    """Accelerators that Ray does not call GPU, by resource: ("TPU", 4.0)."""

    @property
    def title(self) -> str:
        """Name the node for messages. One machine, and so one address, may have several."""
        return f"Ray node {self.name} (id {self.id[:8]})"


class Placement:
    """Gives each place of a run a node of its own: the i-th one, or a spare one if that is lost."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._known: list[str] = []
        """Nodes that were ever seen, in the order of the places."""
        self._taken: dict[int, str] = {}
        self._alive = 0

    def take(self, place: int, nodes: Sequence[Node]) -> Node | None:
        """The node for a place out of those that are alive; None if there is none at present."""
        usable = {node.id: node for node in workers(nodes)}
        self._alive = len(usable)
        self._known += [number for number in usable if number not in self._known]
        others = {number for other, number in self._taken.items() if other != place}
        # Nodes of other places are left to them, also before their replicas are started.
        spare = [*self._known[place : place + 1], *self._known[max(self._wanted, place + 1) :]]
        for number in (self._taken.get(place), *spare):
            if number in usable and number not in others:
                self._taken[place] = number
                return usable[number]
        return None

    def shortage(self) -> str:
        """Explain why there is no node, and how to get one."""
        return (
            f"the Ray cluster has {self._alive} usable node(s) that are alive, {self._wanted} are needed; add nodes "
            "(`ray start --address=HOST:PORT` on each), or lower run.replicas, or raise replica.per_node"
        )


def workers(nodes: Sequence[Node]) -> list[Node]:
    """The nodes that replicas can run on: those with accelerators, or with CPUs if none has any."""
    return [node for node in nodes if node.gpus or node.others] or [node for node in nodes if node.cpus]
