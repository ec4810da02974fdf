"""Sections about a run as a whole, its search, and its replicas."""

from typing import Literal

from pydantic import Field, field_validator

from aiperf.config.datasets import DATASETS
from aiperf.config.sections.base import MOST, Duration, Section
from aiperf.config.texts import Interface, Line, PathText, RunName

Availability = Literal["on-premise", "cloud", "preview", "research"]


def is_url(target: str) -> bool:
    """True if a place is a URL, and not a file."""
    return target.startswith(("https://", "http://"))


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
    exclude: Line | None = None
    """Nodes that get no replica, as a host list such as `gpu[03,07],login`: those that
    `aiperf screen` has named ([howto/screen.md](howto/screen.md)). Not for `local` and `ray`.
    """
    heads: PathText | None = None
    """Referee's file or URL (`https://...`) that is given each head of the run as it comes
    ([trust.md](trust.md#heads)). A URL gets it by POST, and is a part of the published records.
    """
    manager: Literal["native", "nni"] = "native"
    """Manager of the jobs: a replica gets its next one at once (`native`), or from NNI,
    Neural Network Intelligence ([nni.md](nni.md)).
    """
    start_timeout: Duration = 600.0
    """Longest wait for replicas that are not ready at the start; late ones join the run."""
    replica_silence: Duration = 60.0
    """A replica without a heartbeat for this long is lost."""
    stop_grace: Duration = 20.0
    """Time that a replica has to write and end when it is asked to stop."""
    min_free_disk_gib: float = Field(1.0, ge=0, le=2**30)
    """Least free space below the output directory, in GiB."""

    @field_validator("heads")
    @classmethod
    def _known_scheme(cls, target: str | None) -> str | None:
        if target is not None and "://" in target and not is_url(target):
            raise ValueError("heads are given to a file, or to a URL that begins with https:// or http://")
        return target

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
    accelerator, and one on nodes without accelerators or with slices of them (MIG).
    """
    rank_starter: Literal["auto", "none", "horovodrun", "processes", "mpirun"] = "auto"
    """`auto`: `none` for one rank, `mpirun` over several nodes; on one node `horovodrun` (Gloo) for
    TensorFlow, `processes` for others."""
    interface: Interface | None = None
    """Network interface between the nodes of a replica, as `ip link` names it; default: the
    choice of the program that starts the ranks (`rank_starter`).
    """
    warm_up: bool = True
    """Warm up the next trial's ranks while the current trial trains."""
    cpu_threads: int | None = Field(None, ge=1, le=100_000)
    """CPU threads of a rank, and of the images that it decodes; default: its share of the node."""
    progress_interval: Duration = Field(10.0, le=10.0)
    """Seconds between progress reports inside an epoch, at most 10."""
    trial_silence: Duration = 600.0
    """A trainer that reports nothing for this long is ended."""
    accelerator_memory_gib: float | None = Field(None, gt=0, le=2**30)
    """Limits how far architectures may grow, in GiB; default: what is found, without accelerators
    the replica's share of main memory. If it is set, accelerators that only the framework finds
    are used, too.
    """
    restarts: int = Field(3, ge=0, le=MOST)
    """Number of times that a replica is restarted after its death; failed starts on a node that may
    come back do not count, unless this is 0.
    """
    retry_delay: Duration = 2.0
    """Pause before the next attempt; doubles with every failure in a row, up to a minute."""
    max_failed_trials: int = Field(3, ge=1, le=MOST)
    """A replica is put aside after this many failures in a row."""
