"""The description of a system by MLCommons' fields: what people declare, and what nodes measure.

The fields are those that MLCommons' checker requires (mlperf_logging, `system_desc_checker`,
required_fields of `check_system_desc`). A field is described by the declaration if there is one,
else by the facts of the nodes.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from aiperf.cli.units import GIB

Fact = str | int | float | None
NodeFacts = Mapping[str, Fact]


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a description."""

    words: str
    """Meaning of the field."""
    declared: str = ""
    """Key in `[system]`; empty: nobody is asked."""
    measured: Callable[[NodeFacts], str] = lambda _: ""
    """Function that gives the text by the facts of a node; empty if they do not say."""


@dataclass(frozen=True, slots=True)
class Described:
    """A field with its text."""

    field: str
    """Name by MLCommons, or of a key of `[system]` that MLCommons has no field for."""
    words: str
    text: str
    source: Literal["declared", "measured"]
    """declared: people have said so; measured: the nodes have."""


def _fact(*names: str, unit: str = "") -> Callable[[NodeFacts], str]:
    """The first of these facts that a node has."""

    def text(facts: NodeFacts) -> str:
        value = next((facts[name] for name in names if facts.get(name) not in (None, "", 0)), None)
        if value is None:
            return ""
        return f"{value:g}{unit}" if isinstance(value, float) else f"{value}{unit}"

    return text


def _bytes(name: str) -> Callable[[NodeFacts], str]:
    def text(facts: NodeFacts) -> str:
        value = facts.get(name)
        return f"{value / GIB:.0f} GiB" if isinstance(value, int | float) and value > 0 else ""

    return text


def _storage(facts: NodeFacts) -> str:
    """File systems of data and run, the same once."""
    kinds = (facts.get(f"{role}_file_system") for role in ("data", "run"))
    return ", ".join(dict.fromkeys(str(kind) for kind in kinds if kind))


def _network(facts: NodeFacts) -> str:
    return "; ".join(str(facts[name]) for name in ("infiniband", "network") if facts.get(name))


def _storage_bytes(facts: NodeFacts) -> str:
    return _bytes("data_file_system_bytes")(facts) or _bytes("run_file_system_bytes")(facts)


HARDWARE: dict[str, Field] = {
    "host_processors_per_node": Field("processors of a node", measured=_fact("cpu_sockets")),
    "host_processor_model_name": Field("processor", measured=_fact("cpu_model")),
    "host_processor_core_count": Field("cores of a node", measured=_fact("cpu_cores")),
    "host_processor_vcpu_count": Field("CPUs of a node", measured=_fact("node_cpu_count", "cpu_count")),
    "host_processor_frequency": Field("highest clock of a processor", measured=_fact("cpu_max_mhz", unit=" MHz")),
    "host_processor_caches": Field("caches of a core", measured=_fact("cpu_caches")),
    "host_processor_interconnect": Field("links between processors", "processor_interconnect"),
    "host_memory_capacity": Field("memory of a node", measured=_bytes("node_memory_bytes")),
    "host_memory_configuration": Field("modules of memory", "memory", _fact("memory_modules")),
    "host_storage_type": Field("file systems", "storage", _storage),
    "host_storage_capacity": Field("size of the file system", "storage_capacity", _storage_bytes),
    "host_networking": Field("network", "interconnect", _network),
    "host_networking_topology": Field("topology of the network", "topology"),
    "accelerators_per_node": Field("accelerators of a node", measured=_fact("node_accelerators", "accelerators")),
    "accelerator_model_name": Field("accelerator", measured=_fact("accelerator")),
    "accelerator_memory_capacity": Field("memory of an accelerator", measured=_bytes("accelerator_memory_bytes")),
    "accelerator_frequency": Field("clock of an accelerator", "accelerator_clock", _fact("accelerator_clock")),
    "accelerator_on-chip_memories": Field("memories on its chip", "accelerator_caches"),
    "accelerator_memory_configuration": Field("configuration of its memory", "accelerator_memory"),
    "accelerator_host_interconnect": Field("links of accelerators to the host", measured=_fact("accelerator_pcie")),
    "accelerator_interconnect": Field(
        "links between accelerators", "accelerator_interconnect", _fact("accelerator_links")
    ),
    "accelerator_interconnect_topology": Field(
        "topology of those links", "accelerator_topology", _fact("accelerator_topology")
    ),
    "cooling": Field("cooling", "cooling"),
    "hw_notes": Field("notes", "notes"),
    "sw_notes": Field("notes about software", "software_notes"),
    "submitter": Field("submitter", "submitter"),
}
"""Fields by MLCommons' names."""

OTHERS: dict[str, Field] = {
    "site": Field("site", "site"),
    "vendor": Field("vendor", "vendor"),
    "year": Field("year", "year"),
    "price": Field("price", "price"),
    "numa_nodes": Field("memory domains of a node", measured=_fact("numa_nodes")),
    "accelerator_numa": Field("accelerators by memory domain", measured=_fact("accelerator_numa")),
    "cpu_affinity": Field("CPUs of an agent", measured=_fact("cpu_affinity")),
    "mpi": Field("MPI", measured=_fact("mpi")),
    "slurm": Field("SLURM", measured=_fact("slurm")),
    "cuda_runtime": Field("CUDA", measured=_fact("cuda_runtime")),
    "cudnn": Field("cuDNN", measured=_fact("cudnn")),
    "nccl": Field("NCCL", measured=_fact("nccl")),
    "container": Field("container", measured=_fact("container")),
    "container_image": Field("image of the container", measured=_fact("container_image")),
}
"""Further fields."""

OPTIONAL = frozenset({"hw_notes", "sw_notes"})
"""Fields that may stay empty: there is nothing to note about every system."""


def describe(declared: Mapping[str, Fact], nodes: Sequence[NodeFacts]) -> tuple[Described, ...]:
    """Every field that is known, of both tables."""
    found = []
    for name, field in {**HARDWARE, **OTHERS}.items():
        own = declared.get(field.declared) if field.declared else None
        if own not in (None, ""):
            found.append(Described(name, field.words, str(own), "declared"))
        elif text := common([field.measured(facts) for facts in nodes]):
            found.append(Described(name, field.words, text, "measured"))
    return tuple(found)


def common(values: Sequence[Fact]) -> str:
    """The value that all nodes share, or each with the number of nodes that have it."""
    seen = Counter(str(value) for value in values if value not in (None, ""))
    if len(seen) <= 1:
        return next(iter(seen), "")
    return ", ".join(f"{value} ({count} nodes)" for value, count in seen.most_common())


def missing(described: Sequence[Described], accelerators: bool) -> dict[str, Field]:
    """MLCommons' fields without a text; those of accelerators only on systems that have any."""
    known = {each.field for each in described} | OPTIONAL
    return {
        name: field
        for name, field in HARDWARE.items()
        if name not in known and (accelerators or not name.startswith("accelerator"))
    }
