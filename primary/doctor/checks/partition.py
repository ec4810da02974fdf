"""The nodes of a SLURM partition and their states, against what the replicas need together."""

import os

from aiperf.config.placement import nodes_needed
from aiperf.config.settings import RunConfig
from primary.doctor.contract import Evidence, Finding
from slurm.resources import request_of_run
from slurm.states import NodeState, node_in_words

MOST_NAMED = 5
"""Nodes out of order that are named; the others are counted."""


def check_partition(evidence: Evidence) -> list[Finding]:
    """Replicas that are jobs of their own: are there nodes for all of them at once?"""
    config, nodes = evidence.config, evidence.partition
    if nodes is None:
        if config.run.launcher == "slurm" and "SLURM_JOB_ID" not in os.environ:
            return [Finding("partition", "not examined", "sinfo gives no answer (see primary)", "sinfo")]
        return [Finding("partition", "ok", "no replica is a job of SLURM")]
    return [_judged(config, nodes)]


def _judged(config: RunConfig, nodes: tuple[NodeState, ...]) -> Finding:
    name = config.slurm.partition or "the default partition"
    if not nodes:
        return Finding("partition", "failed", f"sinfo shows no node of {name}", "sinfo; --set slurm.partition=NAME")
    needed, broken = needed_at_once(config), [node for node in nodes if node_in_words(node.name, node.state)]
    working, idle = len(nodes) - len(broken), sum("idle" in node.state.lower() for node in nodes if node not in broken)
    states = ", ".join(f"{node.name} {node.state.upper()}" for node in broken[:MOST_NAMED])
    more = f" and {len(broken) - MOST_NAMED} more" if len(broken) > MOST_NAMED else ""
    found = f"{name} has {len(nodes)} nodes" + (f", {working} in working order ({states}{more})" if broken else "")
    if needed is None:
        return Finding("partition", "ok", f"{found}; jobs of replicas may share nodes")
    found += f"; {needed} needed"
    if working < needed:
        fewer = f"--replicas {max(1, config.run.replicas * working // needed)}, or another slurm.partition"
        return Finding("partition", "failed", f"{found}: the other replicas would wait in the queue", fewer)
    if idle < needed:
        return Finding(
            "partition",
            "warning",
            f"{found}; {idle} idle: some replicas would wait in the queue",
            "squeue; --set run.start_timeout=1h waits longer",
        )
    return Finding("partition", "ok", f"{found}; {idle} idle")


def needed_at_once(config: RunConfig) -> int | None:
    """Nodes that the replicas need at the same time; None if their jobs may share nodes."""
    whole = config.replica.per_node > 1 or request_of_run(config.slurm).exclusive is not None
    return nodes_needed(config) if whole else None


def too_few_nodes(config: RunConfig, nodes: tuple[NodeState, ...] | None) -> bool:
    """True if replicas cannot all have their nodes at once: examiners then took turns."""
    needed = needed_at_once(config) if nodes is not None else None
    return needed is not None and sum(not node_in_words(node.name, node.state) for node in nodes or ()) < needed
