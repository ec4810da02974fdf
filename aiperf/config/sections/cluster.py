"""Sections about a cluster: its queue, hosts and software, its description, and what watches it."""

from datetime import time
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from aiperf.config.sections.base import Duration, Listed, Pause, Section
from aiperf.config.texts import (
    MOST_ENTRIES,
    Host,
    Line,
    PathText,
    RayAddress,
    RayResource,
    ShellLine,
    SlurmFeatures,
    SlurmMemory,
    SlurmName,
    SlurmOption,
    SlurmTime,
)

MOST_WORDS = 1000

Words = Annotated[tuple[Line, ...], Listed, Field(max_length=MOST_WORDS)]
Options = Annotated[tuple[SlurmOption, ...], Listed, Field(max_length=MOST_WORDS)]
Hosts = Annotated[tuple[Host, ...], Listed, Field(max_length=MOST_ENTRIES)]


def _text_of_time(value: object) -> object:
    # TOML reads 01:30:00 as a time of day, and 90 as a number (minutes, for SLURM).
    return str(value) if isinstance(value, time | int) and not isinstance(value, bool) else value


TimeLimit = Annotated[SlurmTime, BeforeValidator(_text_of_time)]
Memory = Annotated[SlurmMemory, BeforeValidator(_text_of_time)]
"""Times and memory as SLURM writes them: 13:00:00, 1-12 (days-hours), 90 (minutes); 200G."""


class SlurmSection(Section):
    """Requests to SLURM for the jobs of a run; SBATCH_* and similar variables are ignored."""

    partition: SlurmName | None = None
    """Partition of the nodes; default: SLURM's."""
    account: SlurmName | None = None
    """Account that is charged; default: SLURM's."""
    qos: SlurmName | None = None
    """Quality of service; default: SLURM's."""
    constraint: SlurmFeatures | None = None
    """Features that nodes must have."""
    reservation: SlurmName | None = None
    """Reservation to run in."""
    time: TimeLimit | None = None
    """Time limit as SLURM writes it; default: `run.duration` with the time to start and to end."""
    exclusive: bool | None = None
    """Ask for whole nodes; default: yes, unless `cpus_per_node` asks for less, or jobs of replicas
    share a node (`replica.per_node`): then other users stay away.
    """
    gpus_per_node: int | None = Field(None, ge=1, le=10_000)
    """GPUs to ask for on every node; replicas that share the node divide them."""
    cpus_per_node: int | None = Field(None, ge=1, le=100_000)
    """CPUs to ask for on every node, in place of all; replicas that share the node divide them."""
    memory_per_node: Memory | None = None
    """Memory to ask for on every node, as SLURM writes it (`200G`); default: all of a whole node.

    Replicas that share the node divide it.
    """
    options: Options = ()
    """Further options of sbatch and salloc, as a list."""


class SshSection(Section):
    """Hosts for `run.launcher = "ssh"`. Keys and the ssh agent only; no passwords."""

    hosts: Hosts = ()
    """Hosts as in `~/.ssh/config`, or `[user@]host[:port]`; default: those of the allocation."""
    client: Literal["auto", "openssh", "paramiko"] = "auto"
    """Client that connects; "auto": OpenSSH's `ssh` if it is on the PATH, else paramiko."""
    config_file: PathText = "~/.ssh/config"
    """Options of hosts: names, ports, users, keys, jump hosts."""
    known_hosts: PathText = "~/.ssh/known_hosts"
    """Keys of hosts, in addition to `/etc/ssh/ssh_known_hosts`."""
    connect_timeout: Duration = 30.0
    """Longest time to connect to a host."""
    keep_alive: Duration = 15.0
    """Seconds between keep-alives on a silent connection."""


class RaySection(Section):
    """The Ray cluster of `run.launcher = "ray"`."""

    address: RayAddress = "auto"
    """`host:port` of the cluster; `auto`: `RAY_ADDRESS`, or the cluster that this machine is in."""
    wait: Duration = 60.0
    """Longest wait of a replica for a free node, such as one that replaces its own."""
    accelerator_resource: RayResource | None = None
    """The cluster's own name of its accelerators; GPU, TPU, NPU, `neuron_cores` and Ray's other
    names are known.
    """


class EnvironmentSection(Section):
    """The software on the nodes."""

    python: PathText | None = None
    """Python of the replicas; default: the primary's."""
    activate: ShellLine | None = None
    """Shell line that makes the environment on a node, such as `module load ...`."""
    container: Words = ()
    """Words before the replica's command, as a list, such as `["apptainer", "exec", "image.sif"]`.
    """


class TelemetrySection(Section):
    """Samples of the nodes: accelerators, CPU, memory, network, disk, power."""

    interval: Pause = 30.0
    """Seconds between samples of every node; 0: none."""


class StorageSection(Section):
    """The file system of the run directory."""

    patience: Pause = Field(600.0, ge=0, le=3600)
    """Longest wait for a file system that refuses to be written or read: a full disk or quota, a
    server that restarts, an expired ticket ([faults.md](faults.md)).
    """


class NniSection(Section):
    """NNI's manager and its web portal (`run.manager = "nni"`)."""

    port: int = Field(8080, ge=1, le=65535)
    """Port of the web portal."""
    listen: Literal["loopback", "all"] = "loopback"
    """Network interfaces of the portal; "all", known from earlier runs, is refused."""
    directory: PathText | None = None
    """NNI's own files, on a file system with locks; default: in the run directory."""


class SystemSection(Section):
    """The system, as people describe it. Every key is optional, and shown as declared."""

    submitter: Line | None = None
    """Organisation that submits the result."""
    site: Line | None = None
    """Place of the system, such as a centre and its city."""
    vendor: Line | None = None
    """Maker of the system, and its product name."""
    year: int | None = Field(None, ge=1, le=9999)
    """Year of its installation."""
    price: Line | None = None
    """Price of the system with its currency and date, such as `12 million EUR, 2025`."""
    cooling: Line | None = None
    """Cooling, such as `air` or `direct liquid, 35 degrees`."""
    interconnect: Line | None = None
    """Network between the nodes, such as `4 x InfiniBand NDR 400`."""
    topology: Line | None = None
    """Topology of that network, such as `fat tree, 2:1`."""
    storage: Line | None = None
    """File system of data and run, such as `Lustre on NVMe`."""
    storage_capacity: Line | None = None
    """Its capacity, such as `2 PB`."""
    memory: Line | None = None
    """Memory of a node, such as `24 x 64 GB DDR5-5600`."""
    processor_interconnect: Line | None = None
    """Links between the processors of a node, such as `4 x UPI, 16 GT/s`."""
    accelerator_interconnect: Line | None = None
    """Links between the accelerators of a node, such as `NVLink 4, 900 GB/s`."""
    accelerator_topology: Line | None = None
    """Topology of those links, such as `all to all by NVSwitch`."""
    accelerator_memory: Line | None = None
    """Memory of an accelerator, such as `5 stacks of HBM3, 3.35 TB/s`."""
    accelerator_caches: Line | None = None
    """Memories on the chip of an accelerator, such as `L2 50 MB`."""
    accelerator_clock: Line | None = None
    """Clock of an accelerator, such as `1980 MHz`."""
    notes: Line | None = None
    """Anything else about the hardware."""
    software_notes: Line | None = None
    """Anything else about the software."""
