"""The machine of a run: its nodes by kind, and its software."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from os.path import commonprefix

from pydantic import ValidationError

from aiperf.cli.units import GIB, of_asked
from aiperf.config.frameworks import traits_of
from analysis.output.systems import chosen_framework
from analysis.reading.nodes import NodeFacts
from analysis.report.model import Report

MOST_KINDS = 4
"""Kinds of nodes that are named."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine of a run: pairs of a heading and a text, and its nodes (0: unknown)."""

    nodes: int
    facts: tuple[tuple[str, str], ...]


def _datasets(report: Report) -> str:
    if report.is_science:
        return ", ".join(dict.fromkeys(part.dataset for part in report.workloads if part.dataset))
    return f"{report.configuration.get('run', {}).get('dataset', '')}"


def machine_of(report: Report) -> Machine:
    """Nodes, processors, memory, accelerators, replicas, software and precision."""
    nodes = nodes_of(report)
    precisions = {trial.precision or "" for trial in report.trials}
    precisions |= {part.precision or "" for part in report.workloads}
    found = {
        "nodes": _kinds([_node(facts) for facts in nodes]),
        "accelerators": _kinds([_accelerators(facts) for facts in nodes]),
        "lost accelerators": _lost(nodes),
        "replicas": replicas_of(report),
        "software": _kinds([_software(facts, chosen_framework(report)) for facts in nodes], counted=False),
        "precision": ", ".join(filter(None, sorted(precisions))),
        "data set": _datasets(report),
    }
    return Machine(len(nodes), tuple((name, text) for name, text in found.items() if text))


def nodes_of(report: Report) -> list[NodeFacts]:
    """Every node once: replicas on one host describe the same one.

    Raises ValidationError if a report without its records claims impossible facts.
    """
    every = [NodeFacts.model_validate(facts) for _, facts in sorted(report.system.items())]
    # A node without a name stands for itself.
    return [*{facts.host or f"replica {place}": facts for place, facts in enumerate(every)}.values()]


@dataclass(frozen=True, slots=True)
class Hardware:
    """The machine of a run in a few words. Empty texts and None: unknown."""

    name: str = ""
    """Name of its host, or the common part of its hosts' names, such as gpu*."""
    nodes: int | None = None
    processor: str = ""
    accelerator: str = ""


def hardware_of(report: Report) -> Hardware:
    """Host names, nodes, and models of processors and accelerators."""
    try:
        nodes = nodes_of(report)
    except ValidationError:  # claims of a foreign report
        return Hardware()
    number = max(len(nodes), len({part.host for part in report.usage}))  # an agent for each, or samples
    return Hardware(
        _common_name(sorted({facts.host for facts in nodes if facts.host})),
        number or None,
        _models([facts.cpu_model for facts in nodes]),
        _models([facts.accelerator for facts in nodes if facts.accelerators]),
    )


def _common_name(hosts: Sequence[str]) -> str:
    """gpu01 of one host, gpu* of gpu01 and gpu02: the same for every allocation of a cluster."""
    if len(hosts) < 2:
        return "".join(hosts)
    (first, _, domain), *others = [host.partition(".") for host in hosts]
    # Letters in common, as these are not paths.
    start = commonprefix([first, *(name for name, _, _ in others)]).rstrip("0123456789-_")  # noqa: RUF071
    shared = f".{domain}" if domain and all(domain == its for _, _, its in others) else ""
    return f"{start}*{shared}" if start else f"{hosts[0]} and {len(hosts) - 1} more"


def _models(names: Sequence[str | None]) -> str:
    return "; ".join(name for name, _ in Counter(filter(None, names)).most_common(MOST_KINDS))


def replicas_of(report: Report) -> str:
    """Replicas and the devices of each: 2 CPU replicas, or 64 replicas with 8 accelerators each."""
    each = {part.accelerators for part in report.replica_details if part.ranks != 0}
    plural, who = "" if report.replicas == 1 else "s", of_asked(report.present, report.replicas)
    if not report.accelerators:
        return f"{who}{' CPU' if report.system else ''} replica{plural}"
    if len(each) == 1 and (own := max(each)):
        number = f"{own} accelerator{'' if own == 1 else 's'}"
        return f"{who} replica{plural} with {number}{'' if report.present == 1 else ' each'}"
    return f"{who} replica{plural} on {report.accelerators:,} accelerators"


def _node(facts: NodeFacts) -> str:
    cpus = f"{facts.cpu_count} CPU{'' if facts.cpu_count == 1 else 's'}" if facts.cpu_count else "CPUs"
    parts = [
        f"{cpus} ({facts.cpu_model})" if facts.cpu_model else cpus if facts.cpu_count else "",
        f"{facts.memory_bytes / GIB:.1f} GiB memory" if facts.memory_bytes else "",
    ]
    return ", ".join(filter(None, parts))


def _accelerators(facts: NodeFacts) -> str:
    if not facts.accelerators:
        return "none"
    memory = f" ({facts.accelerator_memory_bytes / GIB:.0f} GiB)" if facts.accelerator_memory_bytes else ""
    return f"{facts.accelerators} x {facts.accelerator or 'accelerator'}{memory}"


def _lost(nodes: Sequence[NodeFacts]) -> str:
    """Accelerators that did not answer, with the names of their nodes."""
    lost = [
        f"{facts.host or 'a node without a name'}: {facts.lost_accelerators}"
        for facts in nodes
        if facts.lost_accelerators
    ]
    return "; ".join([*lost[:MOST_KINDS], *[f"and on {len(lost) - MOST_KINDS} more nodes"] * (len(lost) > MOST_KINDS)])


def _software(facts: NodeFacts, chosen: str) -> str:
    own = traits_of(chosen)
    framework = {own.title: facts.version_of(chosen), "Keras": facts.keras}
    named = {**framework, "Horovod": facts.horovod if own.takes_horovod else None, "Python": facts.python}
    driver = {"driver": facts.accelerator_driver} if facts.accelerators else {}
    return ", ".join(f"{name} {version}" for name, version in {**named, **driver}.items() if version)


def _kinds(texts: list[str], counted: bool = True) -> str:
    """Each text that is not empty, with the number of nodes that have it."""
    seen = Counter(filter(None, texts))
    if len(seen) == 1 and (not counted or "none" in seen):
        return next(iter(seen))
    kinds = [f"{_nodes(number)} {text}" if counted else text for text, number in seen.most_common(MOST_KINDS)]
    return "; ".join([*kinds, *[f"and {len(seen) - MOST_KINDS} more kinds"] * (len(seen) > MOST_KINDS)])


def _nodes(number: int) -> str:
    return "1 node with" if number == 1 else f"{number:,} nodes, each with"
