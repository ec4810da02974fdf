"""A slurm.conf and gres.conf from an inventory of nodes, for machines without a SLURM cluster.

Equal nodes share a line. The functions return text and change nothing.
"""

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from aiperf.cli.units import MIB
from aiperf.config.texts import ADDRESS, CLUSTER_NAME, NODE_NAME, TextRule
from aiperf.errors import UsageError
from aiperf.untrusted.text import VALUE_CHARACTERS, cut, shown

MEMORY_SHARE = 0.95
"""Share of a node's memory that is configured: SLURM drains a node that reports less than that."""


@dataclass(frozen=True, slots=True)
class NodeHardware:
    """A node's hardware as SLURM needs it."""

    host: str
    address: str
    sockets: int
    cores_per_socket: int
    threads_per_core: int
    memory_mib: int
    gpus: tuple[str, ...]

    @property
    def kind(self) -> tuple[Any, ...]:
        """The key by which nodes share a line."""
        return (self.sockets, self.cores_per_socket, self.threads_per_core, self.memory_mib, self.gpus)


class _Accelerator(BaseModel):
    name: str = Field(pattern="[A-Za-z0-9]", max_length=200)


class _Facts(BaseModel):
    """The facts of a node that slurm.conf needs, checked: a node may report anything of itself."""

    model_config = ConfigDict(strict=True, frozen=True)

    host: Annotated[str, NODE_NAME]
    address: Annotated[str, ADDRESS]
    sockets: int = Field(ge=1, le=1024)
    cores_per_socket: int = Field(ge=1, le=65_536)
    threads_per_core: int = Field(ge=1, le=1024)
    memory_bytes: int = Field(ge=64 * MIB, le=2**60)
    accelerators: list[_Accelerator] = Field(max_length=1024)

    def hardware(self) -> NodeHardware:
        """The node as SLURM needs it."""
        return NodeHardware(
            # SLURM's NodeName is what `hostname -s` gives on the node.
            host=self.host.split(".")[0],
            address=self.address,
            sockets=self.sockets,
            cores_per_socket=self.cores_per_socket,
            threads_per_core=self.threads_per_core,
            memory_mib=int(self.memory_bytes * MEMORY_SHARE) // MIB,
            gpus=tuple(_gpu_type(gpu.name) for gpu in self.accelerators),
        )


def read_inventory(document: object) -> tuple[NodeHardware, ...]:
    """The nodes of an inventory of `aiperf nodes probe`.

    Raises UsageError, which names the facts that are missing or not allowed.
    """
    listed = document.get("nodes") if isinstance(document, dict) else None
    if not isinstance(listed, dict):
        raise UsageError("not an inventory: it needs an object with the key nodes")
    nodes, names, problems = [], defaultdict[str, list[str]](list), []
    for name, facts in listed.items():
        try:
            nodes.append(_Facts.model_validate(facts).hardware())
        except ValidationError as error:
            problems.append(f"node {shown(name)}: {_first_problem(error)}")
        else:
            names[nodes[-1].host].append(cut(name, VALUE_CHARACTERS))
    for host, alike in names.items():
        if len(alike) > 1:
            problems.append(f"{' and '.join(alike)} are one node, {host}; name it once: aiperf nodes probe HOSTS")
    if problems:
        raise UsageError(*problems)
    if not nodes:
        raise UsageError("the inventory names no node that could be reached")
    return tuple(nodes)


def _first_problem(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    key = ".".join(map(str, first["loc"])) or "facts"
    if first["type"] == "missing":
        return f"'{key}' is missing"
    rule = {"host": NODE_NAME, "address": ADDRESS}.get(key)
    allowed = rule.allowed if rule is not None else first["msg"].removeprefix("Input should be ")
    return f"'{key}' is {shown(first['input'])}; allowed is {allowed}"


def check_name(option: str, text: str, rule: TextRule) -> str:
    """Give back a name that is fit for slurm.conf. Raises UsageError if it is not."""
    if not rule.meets(text):
        raise UsageError(f"{option} {shown(text)}: allowed is {rule.allowed}")
    return text


def _gpu_type(name: str) -> str:
    # Without the spaces, commas and colons that separate the parts of a GRES.
    return re.sub(r"[^a-z0-9]+", "_", name.lower().removeprefix("nvidia ")).strip("_")


def slurm_conf(nodes: tuple[NodeHardware, ...], cluster: str, controller: str) -> str:
    """The cluster as slurm.conf. Raises UsageError if a name is not one."""
    gpus = any(node.gpus for node in nodes)
    lines = [
        "# Made by `aiperf slurm configure`. The same file goes to /etc/slurm on every node.",
        f"ClusterName={check_name('--cluster', cluster, CLUSTER_NAME)}",
        f"SlurmctldHost={check_name('--controller', controller, NODE_NAME)}",
        "SlurmUser=slurm",
        "AuthType=auth/munge",
        "StateSaveLocation=/var/spool/slurmctld",
        "SlurmdSpoolDir=/var/spool/slurmd",
        "ProctrackType=proctrack/cgroup",
        "TaskPlugin=task/cgroup,task/affinity",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        "SchedulerType=sched/backfill",
        "ReturnToService=1",
        "SlurmdTimeout=60",
        *(("GresTypes=gpu",) if gpus else ()),
        "",
        *(_node_line(alike) for alike in _by_kind(nodes)),
        f"PartitionName=aiperf Nodes={','.join(node.host for node in nodes)} Default=YES MaxTime=INFINITE State=UP",
    ]
    return "\n".join(lines) + "\n"


def gres_conf(nodes: tuple[NodeHardware, ...]) -> str:
    """The accelerators as gres.conf; empty if there are none."""
    lines = []
    for alike in _by_kind(nodes):
        names = ",".join(node.host for node in alike)
        for kind in dict.fromkeys(alike[0].gpus):
            devices = [number for number, gpu in enumerate(alike[0].gpus) if gpu == kind]
            files = ",".join(f"/dev/nvidia{number}" for number in devices)
            lines.append(f"NodeName={names} Name=gpu Type={kind} File={files}")
    return "\n".join(["# Made by `aiperf slurm configure`.", *lines]) + "\n" if lines else ""


def _by_kind(nodes: tuple[NodeHardware, ...]) -> list[list[NodeHardware]]:
    kinds: dict[tuple[Any, ...], list[NodeHardware]] = defaultdict(list)
    for node in nodes:
        kinds[node.kind].append(node)
    return list(kinds.values())


def _node_line(alike: list[NodeHardware]) -> str:
    first = alike[0]
    counts = {kind: first.gpus.count(kind) for kind in dict.fromkeys(first.gpus)}
    gres = ",".join(f"gpu:{kind}:{count}" for kind, count in counts.items())
    return (
        f"NodeName={','.join(node.host for node in alike)} NodeAddr={','.join(node.address for node in alike)} "
        f"Sockets={first.sockets} CoresPerSocket={first.cores_per_socket} ThreadsPerCore={first.threads_per_core} "
        f"RealMemory={first.memory_mib}{f' Gres={gres}' if gres else ''} State=UNKNOWN"
    )
