"""The share of a node that one replica works with: accelerators, CPUs, memory."""

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass

from aiperf.cli.units import GIB
from aiperf.config.placement import GPUS_DIVIDED
from aiperf.config.sections.base import Precision
from aiperf.config.settings import RunConfig
from aiperf.host import this_host
from aiperf.machine.accelerators import best_precision, find_accelerators, share_of, sharers_of, visible_devices
from aiperf.machine.node import divided_among, shared_cpus
from aiperf.machine.vendors import Accelerator
from replica.agent.trial.rank_setup import RankSetup
from replica.search.planner import Memory
from search_space.limits import rank_memory, usable_memory


@dataclass(frozen=True, slots=True)
class NodeShare:
    """The accelerators, memory and ranks that one replica has on its nodes."""

    accelerators: tuple[Accelerator, ...]
    """Accelerators of the replica's first node."""
    memory: Memory
    ranks: RankSetup


def own_accelerators(arguments: argparse.Namespace) -> tuple[Accelerator, ...]:
    """The replica's GPUs of its first node, which a launcher may have divided already."""
    found = find_accelerators()
    return found if divided_among(GPUS_DIVIDED) > 1 else share_of(found, arguments.replica, arguments.share)


def share_of_node(arguments: argparse.Namespace, config: RunConfig) -> NodeShare:
    """The replica's share of the node's accelerators, CPUs and memory."""
    own = own_accelerators(arguments)
    divided = divided_among(GPUS_DIVIDED) > 1
    sharers = 1 if divided else sharers_of(len(find_accelerators()), arguments.replica, arguments.share)
    hosts = tuple(host for host in arguments.hosts.split(",") if host)
    nodes = max(1, len(hosts))
    # One rank for each accelerator of each node, which are taken to be equal; on CPUs and slices of
    # GPUs one for each node, and at least one for each group.
    devices = 0 if any(gpu.is_slice for gpu in own) else len(own)
    ranks = config.replica.ranks or (nodes * devices or max(nodes, config.training.groups))
    precision = config.training.precision or _precision(own, config)
    # Without accelerators all ranks of a node live in its main memory, next to those of the
    # replicas that share it.
    memory: int | None = min(
        (usable_memory(gpu.memory_bytes, sharers) for gpu in own),
        default=this_host().memory().limit * nodes // arguments.share // ranks,
    )
    if config.training.trainer == "simulated":
        memory = None  # a rehearsal of a large machine must not be limited by the small one it runs on
    cpus = config.replica.cpu_threads or max(1, shared_cpus() * nodes // arguments.share // ranks)
    setup = RankSetup(
        config,
        ranks,
        cpus,
        hosts,
        {**_visible(own, nodes), **slots_of_nodes(hosts, ranks)},
        accelerator_part=part_of_accelerator(own, sharers, config.replica.accelerator_memory_gib),
        sharers=sharers,
    )
    return NodeShare(own, Memory(memory, precision), setup)


def part_of_accelerator(own: Sequence[Accelerator], sharers: int, configured_gib: float | None) -> float:
    """The part of an accelerator's memory that a rank may take: all, or what is one sharer's.

    That is `rank_memory`, or what is configured if it is more. A rank that takes more is itself out
    of memory, in place of its neighbour.
    """
    if sharers == 1 or not own:
        return 1.0
    configured = (configured_gib or 0.0) * GIB
    return min(1.0, max(max(configured, rank_memory(gpu.memory_bytes, sharers)) / gpu.memory_bytes for gpu in own))


def _visible(own: tuple[Accelerator, ...], nodes: int) -> dict[str, str]:
    """The environment of ranks: on several nodes, only if the replica has not all of its first one.

    The names of one node's accelerators may mean nothing on another.
    """
    return {} if nodes > 1 and len(own) == len(find_accelerators()) else visible_devices(own)


def _precision(own: tuple[Accelerator, ...], config: RunConfig) -> Precision:
    """The best arithmetic that is right.

    Without accelerators, scientific workloads compute in float32: oneDNN's gradient of 3-D kernels
    in bfloat16 holds infinities for volumes of 2 x 2 x 2 (TensorFlow 2.21, docs/science.md).
    """
    return "float32" if config.run.suite == "science" and not own else best_precision(own)


def slots_of_nodes(hosts: tuple[str, ...], ranks: int) -> dict[str, str]:
    """The environment that gives Open MPI the ranks per node in a SLURM step of one task.

    Open MPI takes its slots from SLURM's variables, which describe the step that the agent is in:
    one task. Without a correction it refuses to start more ranks than that.
    """
    if len(hosts) < 2 or "SLURM_JOB_ID" not in os.environ:
        # Plain hosts: mpirun gets them on its command line, with their slots.
        return {}
    nodes, count = ",".join(hosts), str(len(hosts))
    return {
        "SLURM_JOB_NODELIST": nodes,
        "SLURM_NODELIST": nodes,
        "SLURM_JOB_NUM_NODES": count,
        "SLURM_NNODES": count,
        "SLURM_TASKS_PER_NODE": f"{-(-ranks // len(hosts))}(x{count})",
    }
