"""A run's system description with the fields of MLPerf's `systems` files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from analysis.reading.nodes import NodeFacts
from analysis.report.model import Report


def mlperf_system(report: Report) -> dict[str, object]:
    """The facts of all nodes. Fields that only the submitter knows are empty."""
    every = map(NodeFacts.model_validate, report.system.values())
    nodes = tuple({facts.host: facts for facts in every}.values())
    return {
        "division": "closed" if report.verdict == "official" else "open",
        "submitter": "",
        "status": "",
        "system_name": report.name,
        "number_of_nodes": len(nodes),
        "host_processors_per_node": "",
        "host_processor_model_name": _common(nodes, "cpu_model"),
        "host_processor_core_count": "",
        "host_processor_vcpu_count": _common(nodes, "cpu_count"),
        "host_memory_capacity": _common(nodes, "memory_bytes"),
        "host_storage_type": "",
        "host_storage_capacity": "",
        "host_networking": "",
        "host_networking_topology": "",
        "accelerators_per_node": _common(nodes, "accelerators"),
        "accelerator_model_name": _common(nodes, "accelerator"),
        "accelerator_memory_capacity": _common(nodes, "accelerator_memory_bytes"),
        "accelerator_host_interconnect": "",
        "accelerator_interconnect": "",
        "cooling": "",
        "hw_notes": "",
        "framework": _framework(nodes),
        "other_software_stack": {
            name: _common(nodes, name)
            for name in ("aiperf", "python", "keras", "numpy", "horovod", "accelerator_driver")
            if _common(nodes, name)
        },
        "operating_system": _common(nodes, "os"),
        "sw_notes": "",
    }


def _framework(nodes: Sequence[NodeFacts]) -> str:
    version = _common(nodes, "tensorflow") or _common(nodes, "tensorflow_cpu")
    return f"TensorFlow {version}" if version else ""


def _common(nodes: Sequence[NodeFacts], key: str) -> str:
    """The value that all nodes share, or each value with the number of nodes that have it."""
    seen = Counter(str(value) for facts in nodes if (value := getattr(facts, key)) is not None)
    if len(seen) <= 1:
        return next(iter(seen), "")
    return ", ".join(f"{value} ({count} nodes)" for value, count in seen.most_common())
