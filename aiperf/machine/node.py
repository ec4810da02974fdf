"""A description of this node, for system.json."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Mapping
from functools import cache
from importlib import metadata

import psutil

from aiperf import __version__
from aiperf.config.placement import CPUS_DIVIDED, GPUS_DIVIDED
from aiperf.machine.accelerators import find_accelerators, node_accelerators
from aiperf.machine.cpu import cpu_fields

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

NodeFacts = dict[str, str | int | float | None]


def describe_node() -> NodeFacts:
    """Host, CPU, memory and software of this machine. It never fails: an unknown fact is None."""
    facts: NodeFacts = {
        "host": socket.gethostname(),
        "os": platform.platform(),
        "cpu_model": cpu_model(),
        "cpu_count": shared_cpus(),
        "node_cpu_count": node_cpus(),
        "memory_bytes": node_memory(),
        **software(),
    }
    if "SLURMD_NODENAME" in os.environ:
        facts["slurm_node"] = os.environ["SLURMD_NODENAME"]
    found = find_accelerators()
    facts["accelerators"] = len(found) * divided_among(GPUS_DIVIDED)
    facts["node_accelerators"] = node_accelerators()
    if found:
        facts["accelerator"] = found[0].name
        facts["accelerator_memory_bytes"] = found[0].memory_bytes
        facts["accelerator_driver"] = found[0].driver
    return facts


def software() -> NodeFacts:
    """Versions of Python, of AIPerf and of what trains and searches; None: not installed."""
    versions = {package: _version(package) for package in PACKAGES}
    return {"python": platform.python_version(), "aiperf": __version__, **versions}


def node_memory() -> int:
    """Bytes of main memory of this machine, which a trainer on the CPU uses."""
    return int(psutil.virtual_memory().total)


def available_cpus() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


def node_cpus() -> int:
    """CPUs of this machine, whatever this process may use of them."""
    return os.sysconf("SC_NPROCESSORS_ONLN")


def divided_among(variable: str, environment: Mapping[str, str] = os.environ) -> int:
    """Replicas among which the launcher has divided the node's CPUs or GPUs; 1: it has not."""
    found = environment.get(variable, "")
    return max(1, int(found)) if found.isdigit() else 1


def shared_cpus(environment: Mapping[str, str] = os.environ) -> int:
    """CPUs that the run's replicas on this node may use together."""
    parts = divided_among(CPUS_DIVIDED, environment)
    own, granted = available_cpus(), environment.get("SLURM_CPUS_ON_NODE", "")
    if parts > 1 and granted.isdigit():
        own = min(own, int(granted))  # SLURM without task/affinity or task/cgroup confines no process
    return own if parts == 1 else min(node_cpus(), own * parts)


@cache
def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def cpu_model() -> str:
    """The processor's model, or the architecture if the kernel does not say."""
    return next(iter(cpu_fields("model name")), platform.machine())
