"""The sections of a run's configuration: every setting with its type, default and meaning."""

from __future__ import annotations

from datetime import time
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, field_validator

from aiperf.config.datasets import DATASETS
from aiperf.config.duration import LONGEST_S, parse_duration, parse_pause
from aiperf.config.texts import (
    MOST_ENTRIES,
    Host,
    Line,
    PathText,
    RayAddress,
    RunName,
    ShellLine,
    SlurmFeatures,
    SlurmMemory,
    SlurmName,
    SlurmOption,
    SlurmTime,
)

Precision = Literal["float32", "mixed_bfloat16", "mixed_float16"]
Availability = Literal["on-premise", "cloud", "preview", "research"]

Duration = Annotated[
    float,
    BeforeValidator(parse_duration),
    PlainSerializer(float),
    Field(le=LONGEST_S, json_schema_extra={"format": "duration"}),
]
"""Seconds; written as a number or as 90s, 5m, 1h30m."""

Pause = Annotated[
    float,
    BeforeValidator(parse_pause),
    PlainSerializer(float),
    Field(le=LONGEST_S, json_schema_extra={"format": "duration"}),
]
"""A duration, or 0."""


MOST_WORDS = 1000
MOST = 1_000_000
"""More than this many of anything is a slip."""
MOST_MILLISECONDS = 10**12


def _tuple_of_list(value: object) -> object:
    if isinstance(value, list) and len(value) > MOST_ENTRIES:
        raise ValueError(f"a list of {len(value)} entries; allowed are at most {MOST_ENTRIES}")
    return tuple(value) if isinstance(value, list) else value


Listed = BeforeValidator(_tuple_of_list)
"""For fields that are lists in TOML and tuples here."""
_Number = Annotated[int, Field(ge=-MOST_MILLISECONDS, le=MOST_MILLISECONDS)]

Words = Annotated[tuple[Line, ...], Listed, Field(max_length=MOST_WORDS)]
Options = Annotated[tuple[SlurmOption, ...], Listed, Field(max_length=MOST_WORDS)]
Hosts = Annotated[tuple[Host, ...], Listed, Field(max_length=MOST_ENTRIES)]
Numbers = Annotated[tuple[_Number, ...], Listed, Field(max_length=MOST_ENTRIES)]


def _text_of_time(value: object) -> object:
    # TOML reads 01:30:00 as a time of day, and 90 as a number (minutes, for SLURM).
    return str(value) if isinstance(value, time | int) and not isinstance(value, bool) else value


TimeLimit = Annotated[SlurmTime, BeforeValidator(_text_of_time)]
Memory = Annotated[SlurmMemory, BeforeValidator(_text_of_time)]
"""As SLURM writes them: 13:00:00, 1-12 (days-hours), 90 (minutes); 200G."""


class Section(BaseModel):
    """Base of all sections: strict types, no unknown keys, docstrings as descriptions."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class RunSection(Section):
    """The run as a whole."""

    name: RunName = "aiperf"
    """Name of the system or run, for reports."""
    availability: Availability = "research"
    """Availability of the system, for MLPerf's system description: `on-premise` and `cloud` (can be
    bought or rented), `preview` (soon), or `research` (research, development or internal).
    """
    duration: Duration = Field(43200.0, le=3_600_000)
    """Wall time from the release of the replicas to the deadline: `90s`, `5m`, `1h30m`."""
    replicas: int = Field(1, ge=1, le=100_000)
    """Number of replicas."""
    seed: int = Field(1, ge=0, lt=2**31)
    """Seed of all random streams."""
    suite: Literal["automl", "science"] = "automl"
    """`science`: scientific workloads in place of AutoML ([science.md](science.md))."""
    dataset: Line = "imagenet"
    """`imagenet`, `digits` (embedded), or `images`: any images in ImageNet's format
    ([datasets.md](datasets.md))."""
    data_dir: PathText | None = None
    """Directory of the data set, the same on every node; not needed for `digits`."""
    launcher: Literal["local", "ray", "scheduler", "slurm", "ssh"] = "local"
    """Launcher of the replicas ([clusters.md](clusters.md)); `scheduler`: the allocation's own."""
    manager: Literal["native", "nni"] = "native"
    """Manager of the jobs: a replica gets its next one at once (`native`), or from NNI
    ([nni.md](nni.md)).
    """
    start_timeout: Duration = 600.0
    """Longest wait for replicas that are not ready at the start; late ones join the run."""
    replica_silence: Duration = 60.0
    """A replica without a heartbeat for this long is lost."""
    stop_grace: Duration = 20.0
    """Time that a replica has to write and end when it is asked to stop."""
    min_free_disk_gib: float = Field(1.0, ge=0, le=2**30)
    """Least free space below the output directory, in GiB."""

    @field_validator("dataset")
    @classmethod
    def _known_dataset(cls, name: str) -> str:
        if name not in DATASETS:
            raise ValueError(f"unknown data set {name!r}; known: {', '.join(sorted(DATASETS))}")
        return name


class SearchSection(Section):
    """The search for architectures and hyperparameters."""

    strategy: Literal["bayesian", "random", "unguided"] = "bayesian"
    """Morphs by Bayesian optimisation ([search.md](search.md)), or at random (unofficial);
    `unguided` is for rehearsals ([scale.md](scale.md)).
    """
    hpo: Literal["tpe", "random", "unguided", "none"] = "tpe"
    """Hyperparameters by tree-structured Parzen estimator
    ([hyperparameters.md](hyperparameters.md)), at random (unofficial) or not at all (unofficial);
    `unguided` is for rehearsals.
    """
    hpo_first_round: int = Field(4, ge=1, le=MOST)
    """First round of a replica that tunes hyperparameters."""
    hpo_points: int = Field(2, ge=1, le=1000)
    """Points tried in such a round, in addition to the parent's best."""
    space: PathText | None = None
    """File of the space of hyperparameters, in NNI's format; default: by data set."""
    initial_architecture: Literal["resnet50", "resnet101", "resnet152"] = "resnet50"
    """First architecture; all but ResNet-50 are unofficial."""
    initial_weights: Literal["he", "inherit"] = "he"
    """He et al. 2015, or `inherit`: from the parent's trained weights if they are kept."""
    inherit_noise: float = Field(0.05, ge=0, lt=1)
    """Relative noise between the copies of a widened channel."""
    kept_weights: int = Field(8, ge=1, le=MOST)
    """Weights of this many of the run's most accurate trials are kept, for audits and children.

    They take four bytes for each weight: about 95 MB a trial for ResNet-50 with 1,000 classes.
    """
    max_growth: float = Field(4.0, ge=1, le=1000)
    """Maximum of parameters, operations and layers, in multiples of the initial architecture."""
    cpu_share: float = Field(0.02, gt=0, le=1)
    """Share of one core that a replica spends on proposing ahead, over the time of a trial.

    The first candidate of a round and the last one are proposed in any case.
    """


class ReplicaSection(Section):
    """A replica at work."""

    nodes: int = Field(1, ge=1, le=100_000)
    """Nodes of a replica, with ranks over all of them (slurm, ssh, scheduler)."""
    per_node: int = Field(1, ge=1, le=100_000)
    """Replicas that share a node (slurm, ssh, scheduler, ray); with the local launcher all replicas
    share it.
    """
    ranks: int | None = Field(None, ge=1, le=MOST)
    """Ranks of a training, each with its own share of the images; default: one for each
    accelerator, and one on nodes without accelerators.
    """
    rank_starter: Literal["auto", "none", "horovodrun", "processes", "mpirun"] = "auto"
    """`auto`: `none` for one rank, `mpirun` over several nodes; on one node `horovodrun` (Gloo) for
    TensorFlow, `processes` for others."""
    warm_up: bool = True
    """Warm up the next trial's ranks while the current trial trains."""
    cpu_threads: int | None = Field(None, ge=1, le=100_000)
    """CPU threads of a rank; default: its share of the node."""
    progress_interval: Duration = Field(10.0, le=10.0)
    """Seconds between progress reports inside an epoch, at most 10."""
    trial_silence: Duration = 600.0
    """A trainer that reports nothing for this long is ended."""
    accelerator_memory_gib: float | None = Field(None, gt=0, le=2**30)
    """Limits how far architectures may grow, in GiB; default: what is found, without accelerators
    the replica's share of main memory.
    """
    restarts: int = Field(3, ge=0, le=MOST)
    """Number of times that a replica is restarted after its death."""
    retry_delay: Duration = 2.0
    """Pause before the next attempt; doubles with every failure in a row, up to a minute."""
    max_failed_trials: int = Field(3, ge=1, le=MOST)
    """A replica is put aside after this many failures in a row."""


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


class SimulatedSection(Section):
    """The simulated trainer: no training, made-up accuracies, never official."""

    epoch_seconds: float = Field(0.2, gt=0, le=LONGEST_S)
    """Duration of a simulated epoch."""
    fail_trials: Numbers = ()
    """Trials that fail to build."""
    crash_trials: Numbers = ()
    """Trials whose trainer dies in its second epoch."""
    hang_trials: Numbers = ()
    """Trials whose trainer stops reporting."""
    clock_shifts_ms: Numbers = ()
    """Errors of the clocks of replicas 0, 1, ..., to rehearse nodes that disagree."""
    broken_replicas: Numbers = ()
    """Replicas that cannot start."""
