"""A description of this node, for system.json."""

import os
import platform
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from types import MappingProxyType

from aiperf import __version__
from aiperf.config.placement import CPUS_DIVIDED, GPUS_DIVIDED
from aiperf.errors import EnvironmentNotReadyError
from aiperf.host import ranges, this_host
from aiperf.machine.accelerators import find_accelerators, lost_accelerators, node_accelerators
from aiperf.machine.description import describe_parts
from aiperf.machine.vendors import listed_here

PACKAGES = (
    "tensorflow",
    "tensorflow-cpu",
    "jax",
    "torch",
    "keras",
    "numpy",
    "scipy",
    "scikit-learn",
    "hyperopt",
    "horovod",
)

MOST_TEXT = 1000

NodeFacts = dict[str, str | int | float | None]


def describe_node(folders: Mapping[str, Path] = MappingProxyType({})) -> NodeFacts:
    """Host, CPU, memory and software of this machine. It never fails: an unknown fact is None.

    `folders`: folders by their role, such as `run`, whose file systems are described.
    """
    host = this_host()
    facts: NodeFacts = {
        "host": host.name(),
        "os": host.system(),
        "cpu_model": host.cpu_model(),
        "cpu_count": shared_cpus(),
        "node_cpu_count": host.online_cpus(),
        "memory_bytes": host.memory().limit,
        "node_memory_bytes": host.memory().total,
        **software(),
        **describe_parts(folders),
    }
    if "SLURMD_NODENAME" in os.environ:
        facts["slurm_node"] = os.environ["SLURMD_NODENAME"]
    try:
        found = find_accelerators()
    except EnvironmentNotReadyError:  # the agent refuses with the reason
        found = ()
    if lost := lost_accelerators():
        facts["lost_accelerators"] = "; ".join(lost)[:MOST_TEXT]
    facts["accelerators"] = len(found) * divided_among(GPUS_DIVIDED)
    facts["node_accelerators"] = node_accelerators()
    if found:
        facts["accelerator"] = found[0].name
        facts["accelerator_memory_bytes"] = found[0].memory_bytes
        facts["accelerator_driver"] = found[0].driver
        here = listed_here()
        near = (ranges(host.cpus_near(each.address)) for each in (here[1] if here is not None else ()))
        if cpus := "; ".join(dict.fromkeys(filter(None, near))):
            facts["accelerator_cpus"] = cpus
    return facts


def software() -> NodeFacts:
    """Versions of Python, of AIPerf and of what trains and searches; None: not installed."""
    versions = {package: _version(package) for package in PACKAGES}
    return {"python": platform.python_version(), "aiperf": __version__, **versions}


def divided_among(variable: str, environment: Mapping[str, str] = os.environ) -> int:
    """Replicas among which the launcher has divided the node's CPUs or GPUs; 1: it has not."""
    found = environment.get(variable, "")
    return max(1, int(found)) if found.isdigit() else 1


def shared_cpus(environment: Mapping[str, str] = os.environ) -> int:
    """CPUs that the run's replicas on this node may use together."""
    parts = divided_among(CPUS_DIVIDED, environment)
    own, granted = this_host().usable_cpus(), environment.get("SLURM_CPUS_ON_NODE", "")
    if parts > 1 and granted.isdigit():
        own = min(own, int(granted))  # SLURM without task/affinity or task/cgroup confines no process
    return own if parts == 1 else min(this_host().online_cpus(), own * parts)


@cache
def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
