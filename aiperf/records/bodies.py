"""Bodies of records: what a line of the history list says."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from aiperf.facts import BuiltFacts, EpochFacts, ExchangeFacts, ProgressFacts, ServerFacts
from aiperf.wire.messages import Phase

STRICT = ConfigDict(extra="forbid")
"""Bodies of records are checked, and have slots in place of dictionaries: a long run has millions.
"""


@dataclass(frozen=True, slots=True, kw_only=True, config=STRICT)
class ReplicaReady:
    """Primary: a replica is ready. `clock_offset_ms` is its clock minus the primary's."""

    type: Literal["replica_ready"] = "replica_ready"
    replica: int
    writer: str
    accelerators: int
    clock_offset_ms: int


@dataclass(frozen=True, slots=True, kw_only=True, config=STRICT)
class ReplicaLost:
    """Primary: a replica is gone before the end, or never came.

    Its unfinished trials died with it.
    """

    type: Literal["replica_lost"] = "replica_lost"
    replica: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True, config=STRICT)
class RunReleased:
    """Primary: the replicas may work from now on; this record's time is t0."""

    type: Literal["run_released"] = "run_released"
    duration_ms: int
    ready: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True, config=STRICT)
class RunResumed:
    """Primary: another primary resumes the run. Trainings in progress have died with the old one.

    With `new_clock`, earlier work no longer counts: the next release is t0.
    """

    type: Literal["run_resumed"] = "run_resumed"
    new_clock: bool = False
    claim: int | None = None
    """Number of the primary's claim; None, here and in jobs, in records of earlier versions."""
    until: str | None = None
    """The last records of earlier primaries and their replicas that count, as a cursor
    (`aiperf.records.fencing`).
    """


@dataclass(frozen=True, slots=True, kw_only=True, config=STRICT)
class RunEnded:
    """Primary: the run is over, for the given reason; work until `end_ms` counts.

    `completed`: all work of a suite was done before the deadline.
    """

    type: Literal["run_ended"] = "run_ended"
    reason: Literal["deadline", "interrupted", "no_replicas", "completed"]
    end_ms: int
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, config=STRICT)
class JobIssued:
    """Primary: a replica was given a job; `point`, `base` and `resumes` as in the job."""

    type: Literal["job_issued"] = "job_issued"
    trial: int
    replica: int
    round: int
    seed: int
    point: int = 0
    base: int | None = None
    resumes: int | None = None
    claim: int | None = None
    """Number of the claim of the primary that issued it."""
    workload: str | None = None
    """Of a scientific suite; None: a training of an AutoML round."""
    instance: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True, config=STRICT)
class TrialStarted:
    """Replica: an architecture was chosen and stored; its training begins."""

    type: Literal["trial_started"] = "trial_started"
    trial: int
    replica: int
    round: int
    architecture: str
    parent: str | None
    morphs: tuple[dict[str, str | int], ...] = ()
    point: int = 0
    base: int | None = None
    weights_from: int | None = None
    """The trial whose weights were inherited; None: He initialisation."""
    hyperparameters: dict[str, int | float | str]
    epochs: int
    precision: str = "float32"
    """Arithmetic of the layers."""
    resumes: int | None = None
    """The interrupted trial that this one resumes."""
    trainer: str | None = None
    """`training.trainer`; this and the following are None in records without a chain."""
    input: str | None = None
    """`training.input`."""
    dataset: str | None = None
    fingerprint: str | None = None
    """Of the data set's files, as its manifest says; None: it has none."""
    memory_bytes: int | None = None
    """Memory of an accelerator that limited the search; None: unknown."""
    cursor: str | None = None
    """The records that the plan was made from (`aiperf.records.cursor`)."""
    cursor_hash: str | None = None
    """SHA-256 of the heads of all files at that cursor."""


@dataclass(frozen=True, slots=True, kw_only=True, config=STRICT)
class WorkloadStarted:
    """Replica: the training of one model of a scientific workload begins.

    A pass names a network and says how often an image runs through it: `forward`, `backward` and
    `input_gradient` (`aiperf.network.science.Passes`). The run directory has the networks' files.
    """

    type: Literal["workload_started"] = "workload_started"
    trial: int
    replica: int
    workload: str
    instance: int
    size: str
    framework: str
    """`training.framework`: results of different ones are different benchmarks."""
    networks: dict[str, str]
    """Hashes of the architectures, by name."""
    training_passes: tuple[dict[str, str | int], ...]
    """Of an image that is trained."""
    evaluation_passes: tuple[dict[str, str | int], ...]
    """Of an image that is evaluated."""
    further_training: int
    """Operations outside of networks, of an image that is trained: RoI-align."""
    further_evaluation: int
    target: dict[str, float]
    """Values that the measures of one epoch must reach together."""
    higher: bool
    """True if a higher measure is better."""
    hyperparameters: dict[str, int | float | str]
    epochs: int
    """At most."""
    precision: str
    trainer: str
    dataset: str
    generated: bool
    """True if the data set was generated and not observed."""
    fingerprint: str | None = None
    resumes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True, config=STRICT)
class TrialBuilt(BuiltFacts):
    """Replica: the trainer has built the trial's model."""

    type: Literal["trial_built"] = "trial_built"
    trial: int


@dataclass(frozen=True, slots=True, kw_only=True, config=STRICT)
class PhaseBegan:
    """Replica: a phase begins; the one before it ends."""

    type: Literal["phase"] = "phase"
    replica: int
    trial: int | None
    phase: Phase


@dataclass(frozen=True, slots=True, kw_only=True, config=STRICT)
class ProgressMade(ProgressFacts):
    """Replica: images of the current epoch so far."""

    type: Literal["progress"] = "progress"
    trial: int


@dataclass(frozen=True, slots=True, kw_only=True, config=STRICT)
class EpochCompleted(EpochFacts):
    """Replica: an epoch is complete."""

    type: Literal["epoch"] = "epoch"
    trial: int


@dataclass(frozen=True, slots=True, kw_only=True, config=STRICT)
class GroupExchanged(ExchangeFacts):
    """Replica: what a group of a hybrid training exchanged with the servers in an epoch."""

    type: Literal["exchanged"] = "exchanged"
    trial: int


@dataclass(frozen=True, slots=True, kw_only=True, config=STRICT)
class ServerServed(ServerFacts):
    """Replica: what a parameter server of a hybrid training did in an epoch."""

    type: Literal["served"] = "served"
    trial: int


@dataclass(frozen=True, slots=True, kw_only=True, config=STRICT)
class TrialEnded:
    """Replica: a training ended well. `stopped` is by the end of the run.

    The search uses `predicted_accuracy` in place of the measured one, in warm-up rounds only.
    """

    type: Literal["trial_ended"] = "trial_ended"
    trial: int
    reason: Literal["completed", "early_stop", "stopped"]
    predicted_accuracy: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True, config=STRICT)
class TrialFailed:
    """Replica: a training failed. Completed epochs count, the unfinished one does not."""

    type: Literal["trial_failed"] = "trial_failed"
    trial: int
    replica: int
    kind: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True, config=STRICT)
class EpochWitnessed:
    """Primary: it heard of an epoch over the replica's pipe, at the time of this record.

    The epoch's record is number `sequence` of `writer`; `digest` is the SHA-256 of its line.
    """

    type: Literal["epoch_witnessed"] = "epoch_witnessed"
    trial: int
    epoch: int
    writer: str
    sequence: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True, config=STRICT)
class TrialClosed:
    """Primary: a trial is over, and this is the last record of its writer that is known of.

    `sequence` and `digest` (SHA-256 of the line) are None if the replica was lost before it told
    of any. A trial that its replica's end interrupted is "lost"; one that the end of the run
    stopped is "stopped".
    """

    type: Literal["trial_closed"] = "trial_closed"
    trial: int
    how: Literal["completed", "failed", "cancelled", "stopped", "lost"]
    writer: str
    sequence: int | None = None
    digest: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, config=STRICT)
class PrimaryPaused:
    """Primary: it stood still until now, suspended or stopped, and hears late of what happened."""

    type: Literal["primary_paused"] = "primary_paused"
    duration_ms: int


@dataclass(frozen=True, slots=True, kw_only=True, config=STRICT)
class NodeMeasured:
    """Primary: a replica has measured its node with the micro suite before it was ready.

    `digest` is the SHA-256 of the node's file, `micro/NAME` below the run.
    """

    type: Literal["node_measured"] = "node_measured"
    replica: int
    name: str
    digest: str


AnyBody = (
    ReplicaReady | ReplicaLost | RunReleased | RunResumed | RunEnded | JobIssued
    | TrialStarted | WorkloadStarted | TrialBuilt | PhaseBegan | ProgressMade | EpochCompleted
    | GroupExchanged | ServerServed | TrialEnded | TrialFailed | EpochWitnessed | TrialClosed
    | PrimaryPaused | NodeMeasured
)  # fmt: skip
