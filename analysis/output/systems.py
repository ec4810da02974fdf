"""A run's system description with the fields of MLPerf's `systems` files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from aiperf.frameworks.installed import TITLES
from analysis.reading.nodes import NodeFacts
from analysis.report.model import Report

STATUSES: dict[str, str] = {
    "on-premise": "Available on-premise",
    "cloud": "Available cloud",
    "preview": "Preview",
    "research": "Research, Development, or Internal (RDI)",
}
"""The words of MLPerf for each value of `run.availability`."""


def mlperf_system(report: Report) -> dict[str, object]:
    """The facts of all nodes. Fields that only the submitter knows are empty.

    The status is `run.availability`, or research in reports of earlier versions.
    """
    nodes = _nodes(report)
    return {
        "division": "closed" if report.verdict == "official" else "open",
        "submitter": "",
        "status": STATUSES[report.configuration["run"].get("availability", "research")],
        "system_name": report.name,
        "number_of_nodes": len(nodes),
        **_hosts(nodes),
        **_accelerators(nodes),
        "cooling": "",
        "hw_notes": "",
        "framework": framework(report),
        "other_software_stack": {
            name: _common(nodes, name)
            for name in ("aiperf", "python", "keras", "numpy", "horovod", "accelerator_driver")
            if _common(nodes, name)
        },
        "operating_system": _common(nodes, "os"),
        "sw_notes": "",
    }


def _hosts(nodes: Sequence[NodeFacts]) -> dict[str, str]:
    return {
        "host_processors_per_node": "",
        "host_processor_model_name": _common(nodes, "cpu_model"),
        "host_processor_core_count": "",
        "host_processor_vcpu_count": _common(nodes, "cpu_count"),
        "host_processor_frequency": "",
        "host_processor_caches": "",
        "host_processor_interconnect": "",
        "host_memory_capacity": _common(nodes, "memory_bytes"),
        "host_memory_configuration": "",
        "host_storage_type": "",
        "host_storage_capacity": "",
        "host_networking": "",
        "host_networking_topology": "",
    }


def _accelerators(nodes: Sequence[NodeFacts]) -> dict[str, str]:
    return {
        "accelerators_per_node": _common(nodes, "accelerators"),
        "accelerator_model_name": _common(nodes, "accelerator"),
        "accelerator_memory_capacity": _common(nodes, "accelerator_memory_bytes"),
        "accelerator_frequency": "",
        "accelerator_on-chip_memories": "",
        "accelerator_memory_configuration": "",
        "accelerator_host_interconnect": "",
        "accelerator_interconnect": "",
        "accelerator_interconnect_topology": "",
    }


def _nodes(report: Report) -> tuple[NodeFacts, ...]:
    """Each node once, whichever of its replicas described it."""
    every = map(NodeFacts.model_validate, report.system.values())
    return tuple({facts.host: facts for facts in every}.values())


def framework(report: Report) -> str:
    """The framework of all nodes with its version; empty if none is known."""
    chosen = chosen_framework(report)
    version = _shared([facts.version_of(chosen) for facts in _nodes(report)])
    return f"{TITLES.get(chosen, chosen)} {version}" if version else ""


def chosen_framework(report: Report) -> str:
    """The framework that trained (`training.framework`); reports of earlier versions have none."""
    return str(report.configuration.get("training", {}).get("framework", "tensorflow"))


def _common(nodes: Sequence[NodeFacts], key: str) -> str:
    """The value that all nodes share, or each value with the number of nodes that have it."""
    return _shared([getattr(facts, key) for facts in nodes])


def _shared(values: Sequence[object]) -> str:
    seen = Counter(str(value) for value in values if value is not None)
    if len(seen) <= 1:
        return next(iter(seen), "")
    return ", ".join(f"{value} ({count} nodes)" for value, count in seen.most_common())
