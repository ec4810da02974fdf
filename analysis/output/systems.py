"""A run's system description with the fields of MLPerf's `systems` files."""

from aiperf.config.frameworks import DEFAULT_FRAMEWORK, traits_of
from aiperf.rules.description import HARDWARE, common
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
    """The system as MLCommons' checker reads it. Fields that nobody has said anything of are empty.

    The status is `run.availability`, or research in reports of earlier versions.
    """
    nodes, texts = _nodes(report), {each.field: each.text for each in report.description}
    return {
        "division": "closed" if report.verdict == "official" else "open",
        "status": STATUSES[report.configuration["run"].get("availability", "research")],
        "system_name": report.name,
        "number_of_nodes": len(nodes),
        **{name: texts.get(name, "") for name in HARDWARE},
        "framework": framework(report),
        "other_software_stack": {
            **{name: text for name in PACKAGES if (text := common([getattr(facts, name) for facts in nodes]))},
            **{name: texts[name] for name in PROGRAMS if name in texts},
        },
        "operating_system": common([facts.os for facts in nodes]),
    }


PACKAGES = ("aiperf", "python", "keras", "numpy", "horovod", "accelerator_driver")
PROGRAMS = ("mpi", "slurm", "cuda_runtime", "cudnn", "nccl", "container", "container_image")
"""Software of the stack, by the names of its facts."""


def _nodes(report: Report) -> tuple[NodeFacts, ...]:
    """Each node once, whichever of its replicas described it."""
    every = map(NodeFacts.model_validate, report.system.values())
    return tuple({facts.host: facts for facts in every}.values())


def framework(report: Report) -> str:
    """The framework of all nodes with its version; empty if none is known."""
    chosen = chosen_framework(report)
    version = common([facts.version_of(chosen) for facts in _nodes(report)])
    return f"{traits_of(chosen).title} {version}" if version else ""


def chosen_framework(report: Report) -> str:
    """The framework that trained (`training.framework`); reports of earlier versions have none."""
    return str(report.configuration.get("training", {}).get("framework", DEFAULT_FRAMEWORK))
