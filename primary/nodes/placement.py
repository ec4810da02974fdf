"""Warnings about replicas that do not get the nodes that the configuration means for them."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from aiperf.config.settings import RunConfig

Facts = Mapping[str, str | int | float | None]
"""A replica's description of its node."""

LEAST_CPUS = 0.75
"""Share of a node's CPUs below which a run is confined: sites reserve a few for the system."""

MOST_NAMES = 8
"""Replicas or nodes that a warning names; the others are counted."""


@dataclass
class PlacementCheck:
    """Compares where replicas run and what they see with what a node has; warns once of each."""

    config: RunConfig
    per_node: int
    """Replicas that are meant to share a node."""
    _warned: set[tuple[str, object]] = field(default_factory=set)

    def look(self, nodes: Mapping[int, Facts]) -> dict[str, tuple[int, ...]]:
        """New warnings about the replicas that are present, each with those that it is about.

        A warning is what was found, a semicolon, and the remedy.
        """
        return {
            **self._crowded(nodes),
            **self._confined(nodes),
            **self._without_gpus(nodes),
            **self._with_lost_gpus(nodes),
        }

    def _crowded(self, nodes: Mapping[int, Facts]) -> dict[str, tuple[int, ...]]:
        by_node: dict[str, list[int]] = defaultdict(list)
        for replica, facts in sorted(nodes.items()):
            if (name := node_of(facts)) is not None:
                by_node[name].append(replica)
        found = {}
        for name, replicas in by_node.items():
            if len(replicas) > self.per_node and self._is_new("crowded", (name, len(replicas))):
                text = (
                    f"{_replicas(replicas)} share node {name}, but replica.per_node is {self.per_node}: "
                    f"each gets a part of what it should have; {self._crowding_remedy(len(replicas))}"
                )
                found[text] = tuple(replicas)
        return found

    def _crowding_remedy(self, count: int) -> str:
        if self.config.run.launcher == "slurm":
            return f"leave slurm.exclusive out, or set replica.per_node={count}"
        return f"name more hosts, or set replica.per_node={count}"

    def _confined(self, nodes: Mapping[int, Facts]) -> dict[str, tuple[int, ...]]:
        groups: dict[tuple[int, int], list[int]] = defaultdict(list)
        asked = self.config.slurm.cpus_per_node if self.config.run.launcher == "slurm" else None
        for replica, has, sees in _numbers(nodes, "node_cpu_count", "cpu_count"):
            # A run that asks for a part of the CPUs is to get that part, and no more.
            if sees < LEAST_CPUS * min(has, asked or has) and self._is_new("cpus", replica):
                groups[sees, has].append(replica)
        remedy = self._confining_remedy()
        return {_too_few(own, key, "CPUs", nodes) + remedy: tuple(own) for key, own in groups.items()}

    def _confining_remedy(self) -> str:
        if self.config.run.launcher != "slurm":
            return "start the run outside of an allocation's step, or lift the limit (taskset, cgroup)"
        return (
            "ask for whole nodes: leave slurm.exclusive out, and inside an allocation request it with --exclusive "
            "(aiperf slurm script does)"
        )

    def _without_gpus(self, nodes: Mapping[int, Facts]) -> dict[str, tuple[int, ...]]:
        groups: dict[tuple[int, int], list[int]] = defaultdict(list)
        for replica, has, sees in _numbers(nodes, "node_accelerators", "accelerators"):
            if sees < has and self._is_new("gpus", replica):
                groups[sees, has].append(replica)
        return {_too_few(own, key, "GPUs", nodes) + self._gpu_remedy(key[1]): tuple(own) for key, own in groups.items()}

    def _with_lost_gpus(self, nodes: Mapping[int, Facts]) -> dict[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {}
        for replica, facts in sorted(nodes.items()):
            if (lost := facts.get("lost_accelerators")) and self._is_new("lost", (node_of(facts), lost)):
                where = f"node {node_of(facts)} of replica {replica}"
                found[f"{where} has unusable accelerators: {lost}; reset a lost one, or restart the node"] = (replica,)
        return found

    def _gpu_remedy(self, has: int) -> str:
        asked = f"set slurm.gpus_per_node={has}, or " if self.config.run.launcher == "slurm" else ""
        return f"{asked}correct CUDA_VISIBLE_DEVICES or the driver (nvidia-smi)"

    def _is_new(self, kind: str, subject: object) -> bool:
        new = (kind, subject) not in self._warned
        self._warned.add((kind, subject))
        return new


def node_of(facts: Facts) -> str | None:
    """The node as SLURM names it, else as it names itself."""
    name = facts.get("slurm_node") or facts.get("host")
    return None if name is None else str(name)


def _numbers(nodes: Mapping[int, Facts], has: str, sees: str) -> Iterator[tuple[int, int, int]]:
    """Replicas whose nodes know both numbers: replica, what the node has, what its replicas see."""
    for replica, facts in sorted(nodes.items()):
        whole, part = facts.get(has), facts.get(sees)
        if isinstance(whole, int) and isinstance(part, int):
            yield replica, whole, part


def _too_few(replicas: Sequence[int], seen: tuple[int, int], kind: str, nodes: Mapping[int, Facts]) -> str:
    names = list(dict.fromkeys(node_of(nodes[replica]) or "a node without a name" for replica in replicas))
    place = f"node {names[0]}" if len(names) == 1 else f"each of the nodes {_listed(names)}"
    return f"{_replicas(replicas)} can use only {seen[0]} of the {seen[1]} {kind} of {place}; "


def _replicas(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"replica {numbers[0]}"
    return f"replicas {_listed([str(number) for number in numbers])}"


def _listed(names: Sequence[str]) -> str:
    if len(names) > MOST_NAMES:
        return f"{', '.join(names[:MOST_NAMES])} and {len(names) - MOST_NAMES} more"
    return f"{', '.join(names[:-1])} and {names[-1]}"
