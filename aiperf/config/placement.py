"""Placement of a replica: one or several nodes of its own, or one that it shares with others."""

from collections.abc import Sequence

from aiperf.config.settings import RunConfig

CPUS_DIVIDED, GPUS_DIVIDED = "AIPERF_CPUS_DIVIDED", "AIPERF_GPUS_DIVIDED"
"""Variables for an agent that shares its node: the number of replicas among which its launcher has
divided the CPUs or GPUs. The agent sees its own part only; without them it divides what it sees.
"""

JOB_OF_ITS_OWN = "AIPERF_JOB_OF_ITS_OWN"
"""Variable for an agent with a SLURM job to itself, which it cancels if its primary is gone."""


def nodes_needed(config: RunConfig) -> int:
    """Nodes of all replicas."""
    replica = config.replica
    if replica.per_node > 1:
        return -(-config.run.replicas // replica.per_node)
    return config.run.replicas * replica.nodes


def nodes_of(replica: int, config: RunConfig, nodes: Sequence[str]) -> tuple[str, ...]:
    """The nodes of one replica out of all; fewer than `replica.nodes` if there are not enough."""
    count = config.replica.nodes
    first = replica // config.replica.per_node if config.replica.per_node > 1 else replica * count
    return tuple(nodes[first : first + count])
