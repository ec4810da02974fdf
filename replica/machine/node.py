"""A description of this node, for system.json."""

from __future__ import annotations

import os
import platform
import socket
from importlib import metadata

import psutil

from aiperf import __version__
from replica.machine.accelerators import find_accelerators
from replica.machine.cpu import cpu_fields

PACKAGES = ("tensorflow", "tensorflow-cpu", "keras", "numpy", "horovod")

NodeFacts = dict[str, str | int | float | None]


def describe_node() -> NodeFacts:
    """Host, CPU, memory and software of this machine. It never fails: an unknown fact is None."""
    facts: NodeFacts = {
        "host": socket.gethostname(),
        "os": platform.platform(),
        "cpu_model": _cpu_model(),
        "cpu_count": available_cpus(),
        "memory_bytes": node_memory(),
        "python": platform.python_version(),
        "aiperf": __version__,
    }
    for package in PACKAGES:
        facts[package] = _version(package)
    found = find_accelerators()
    facts["accelerators"] = len(found)
    if found:
        facts["accelerator"] = found[0].name
        facts["accelerator_memory_bytes"] = found[0].memory_bytes
        facts["accelerator_driver"] = found[0].driver
    return facts


def node_memory() -> int:
    """Bytes of main memory of this machine, which a trainer on the CPU uses."""
    return int(psutil.virtual_memory().total)


def available_cpus() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _cpu_model() -> str:
    return next(iter(cpu_fields("model name")), platform.machine())
