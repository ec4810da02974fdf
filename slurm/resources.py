"""The resources of a node that a replica's job or a whole run's allocation asks SLURM for."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from aiperf.config.sections.cluster import SlurmSection
from aiperf.config.settings import RunConfig
from aiperf.errors import UsageError
from aiperf.untrusted.text import shown
from slurm.allocation import gpus_of_nodes

NODE_FORMAT = "%P|%c|%m"
"""Format of sinfo: partition, CPUs, MiB of memory; a star marks the default partition."""

ALL_MEMORY = "0"
"""Value of --mem that asks for all the memory of a node."""

JOBS_MEMORY_PERCENT = 90
"""Percentage of a node's memory for jobs that share it: its system may keep some (MemSpecLimit)."""

_MIB = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2}
_COUNT = re.compile(r"(\d+)(?:\(x\d+\))?")


@dataclass(frozen=True, slots=True)
class NodeSize:
    """A node, or the part of it that an allocation has."""

    cpus: int
    memory_mib: int


@dataclass(frozen=True, slots=True)
class Request:
    """The resources that a job asks for on each of its nodes. None: SLURM decides."""

    exclusive: str | None
    """The option that keeps other jobs off the node."""
    cpus: int | None
    memory: str | None
    gpus: int | None

    def options(self) -> list[str]:
        """The options of salloc and sbatch."""
        chosen = {"--cpus-per-task": self.cpus, "--mem": self.memory, "--gpus-per-node": self.gpus}
        asked = [f"{option}={value}" for option, value in chosen.items() if value is not None]
        return [*((self.exclusive,) if self.exclusive else ()), *asked]


@dataclass(frozen=True, slots=True)
class StepPart:
    """The part of a node that SLURM gives to one of several steps in an allocation."""

    cpus: int
    gpus: int


def request_of_run(settings: SlurmSection) -> Request:
    """The allocation of a whole run: whole nodes unless the settings ask for less."""
    whole = settings.exclusive if settings.exclusive is not None else settings.cpus_per_node is None
    memory = settings.memory_per_node or (ALL_MEMORY if whole else None)
    return Request("--exclusive" if whole else None, settings.cpus_per_node, memory, settings.gpus_per_node)


def needs_node_size(config: RunConfig) -> bool:
    """True if jobs of replicas that share a node cannot be sized by the settings alone."""
    settings = config.slurm
    return config.replica.per_node > 1 and None in (settings.cpus_per_node, settings.memory_per_node)


def request_of_replica(config: RunConfig, node: NodeSize | None = None) -> Request:
    """The job of one replica: a whole node, or its part of a node of this size that it shares.

    Raises UsageError if a node cannot be divided so.
    """
    settings, per_node = config.slurm, config.replica.per_node
    if per_node == 1:
        return request_of_run(settings)
    problems = list(_why_indivisible(config, node))
    if problems:
        raise UsageError(*problems)
    cpus = settings.cpus_per_node or (node.cpus if node else per_node)
    memory = mib_of(settings.memory_per_node) if settings.memory_per_node else None
    if memory is None and node is not None:
        memory = node.memory_mib * JOBS_MEMORY_PERCENT // 100
    return Request(
        # Jobs of one user may share the node, those of others stay away.
        None if settings.exclusive is False else "--exclusive=user",
        cpus // per_node,
        f"{max(1, memory // per_node)}M" if memory else None,
        settings.gpus_per_node // per_node if settings.gpus_per_node else None,
    )


def _why_indivisible(config: RunConfig, node: NodeSize | None) -> list[str]:
    settings, per_node = config.slurm, config.replica.per_node
    problems = []
    if settings.exclusive:
        problems.append(
            f"slurm.exclusive: true gives every replica a node of its own, but replica.per_node is {per_node}; "
            "leave slurm.exclusive out, or run in an allocation: aiperf slurm script"
        )
    cpus = settings.cpus_per_node or (node.cpus if node else None)
    for key, count in (("slurm.gpus_per_node", settings.gpus_per_node), ("slurm.cpus_per_node", cpus)):
        if count is not None and count < per_node:
            problems.append(
                f"{key}: {count} cannot be divided among jobs of {per_node} replicas (replica.per_node); "
                f"lower replica.per_node to {max(1, count)}, or run in an allocation: aiperf slurm script"
            )
    return problems


def part_in_allocation(config: RunConfig, environment: Mapping[str, str], job: str) -> StepPart | None:
    """The part of a replica that shares its node, by the allocation's variables and description.

    None if a replica has its node for itself, or the node cannot be divided: its replicas then see
    all of it.
    """
    per_node = config.replica.per_node
    lists = [
        text for name, text in environment.items() if re.fullmatch(r"SLURM_JOB_CPUS_PER_NODE(_HET_GROUP_\d+)?", name)
    ]
    # "8(x2),4": CPUs of a node, and how many nodes in a row have as many. The smallest decides.
    cpus = min(map(int, _COUNT.findall(",".join(lists))), default=0)
    gpus = gpus_of_allocation(config.slurm, environment, job)
    if per_node == 1 or cpus < per_node or gpus is None or 0 < gpus < per_node:
        return None
    return StepPart(cpus // per_node, gpus // per_node)


def gpus_of_allocation(settings: SlurmSection, environment: Mapping[str, str], job: str) -> int | None:
    """GPUs of each node of an allocation; None if their number is not known.

    Variables depend on the options that a user asked with (`--gres` sets none); `job`, the output
    of `scontrol show job --details`, does not.
    """
    found = environment.get("SLURM_GPUS_ON_NODE", "")
    if found.isdigit():
        return int(found)
    if settings.gpus_per_node is not None:
        return settings.gpus_per_node
    return gpus_of_nodes(job)


def smallest_node(shown: str, partition: str | None) -> NodeSize | None:
    """The fewest CPUs and the least memory among a partition's nodes, from sinfo with NODE_FORMAT.

    None for `partition`: SLURM's default. The result is None if no node is shown.
    """
    rows = [line.strip().split("|") for line in shown.splitlines()]
    sizes = [
        (int(cpus.rstrip("+")), int(memory.rstrip("+")))
        for name, cpus, memory in (row for row in rows if len(row) == 3)
        if partition is not None or name.endswith("*")
    ]
    return NodeSize(min(cpus for cpus, _ in sizes), min(memory for _, memory in sizes)) if sizes else None


def mib_of(text: str) -> int:
    """MiB of memory as SLURM writes it: 200G, 1T, 4096 (MiB).

    Raises UsageError.
    """
    found = re.fullmatch(r"(\d+)([KMGT]?)B?", text.strip().upper())
    if found is None or not int(found[1]):
        raise UsageError(f"slurm.memory_per_node: found {shown(text)}; write it as 200G, 512000M or 1T")
    return math.ceil(int(found[1]) * _MIB[found[2] or "M"])
