"""Bodies of records: what a line of the history list says."""

from typing import Literal

from msgspec import Struct

from aiperf.facts import (
    BuiltFacts,
    Bytes,
    Duration,
    EpochFacts,
    ExchangeFacts,
    Many,
    Moment,
    Name,
    Number,
    Offset,
    ProgressFacts,
    ServerFacts,
    Trial,
    Whole,
)
from aiperf.wire.messages import Job, Phase


class Body(Struct, frozen=True, gc=False, forbid_unknown_fields=True, tag_field="type"):
    """Base of all bodies. What is read is checked, what is made is not.

    No body can be a part of a circle, so the garbage collector need not visit the millions of a
    long run.
    """

    @property
    def type(self) -> str:
        """The kind, as a line says it."""
        return str(self.__struct_config__.tag)


class ReplicaReady(Body, tag="replica_ready", frozen=True, kw_only=True):
    """Primary: a replica is ready. `clock_offset_ms` is its clock minus the primary's."""

    replica: Number
    writer: Name
    accelerators: Number
    clock_offset_ms: Offset


class ReplicaLost(Body, tag="replica_lost", frozen=True, kw_only=True):
    """Primary: a replica is gone before the end, or never came.

    Its unfinished trials died with it.
    """

    replica: Number
    reason: str


class RunReleased(Body, tag="run_released", frozen=True, kw_only=True):
    """Primary: the replicas may work from now on; this record's time is t0."""

    duration_ms: Duration
    ready: tuple[Number, ...]


class RunResumed(Body, tag="run_resumed", frozen=True, kw_only=True):
    """Primary: another primary resumes the run. Trainings in progress have died with the old one.

    With `new_clock`, earlier work no longer counts: the next release is t0.
    """

    new_clock: bool = False
    claim: Whole | None = None
    """Number of the primary's claim; None, here and in jobs, in records of earlier versions."""
    until: str | None = None
    """The last records of earlier primaries and their replicas that count, as a cursor
    (`aiperf.records.fencing`).
    """


class RunEnded(Body, tag="run_ended", frozen=True, kw_only=True):
    """Primary: the run is over, for the given reason; work until `end_ms` counts.

    `completed`: all work of a suite was done before the deadline.
    """

    reason: Literal["deadline", "interrupted", "no_replicas", "completed"]
    end_ms: Moment
    detail: str = ""
    files: tuple[tuple[Name, Bytes, Name], ...] = ()
    """Files that describe nodes and their samples: name, number of first bytes, and their SHA-256
    (`aiperf.run_directory.recorded_files`).
    """


class JobIssued(Body, tag="job_issued", frozen=True, kw_only=True):
    """Primary: a replica was given a job; `point`, `base` and `resumes` as in the job."""

    trial: Trial
    replica: Number
    round: Number
    seed: Whole
    point: Number = 0
    base: Trial | None = None
    resumes: Trial | None = None
    claim: Whole | None = None
    """Number of the claim of the primary that issued it."""
    workload: Name | None = None
    """Scientific workload; None: a training of an AutoML round."""
    instance: Number | None = None


class TrialStarted(Body, tag="trial_started", frozen=True, kw_only=True):
    """Replica: an architecture was chosen and stored; its training begins."""

    trial: Trial
    replica: Number
    round: Number
    architecture: Name
    parent: Name | None
    morphs: tuple[dict[str, str | Whole], ...] = ()
    point: Number = 0
    base: Trial | None = None
    weights_from: Trial | None = None
    """The trial whose weights were inherited; None: He initialisation."""
    hyperparameters: dict[str, Whole | float | str]
    epochs: Number
    precision: Name = "float32"
    """Arithmetic of the layers."""
    resumes: Trial | None = None
    """The interrupted trial that this one resumes."""
    trainer: Name | None = None
    """`training.trainer`; this and the following are None in records without a chain."""
    input: Name | None = None
    """`training.input`."""
    dataset: Name | None = None
    fingerprint: Name | None = None
    """Fingerprint of the data set's files, as its manifest says; None: it has none."""
    memory_bytes: Bytes | None = None
    """Memory of an accelerator that limited the search; None: unknown."""
    cursor: str | None = None
    """The records that the plan was made from (`aiperf.records.cursor`)."""
    cursor_hash: Name | None = None
    """SHA-256 of the heads of all files at that cursor."""


class WorkloadStarted(Body, tag="workload_started", frozen=True, kw_only=True):
    """Replica: the training of one model of a scientific workload begins.

    A pass names a network and says how often an image runs through it: `forward`, `backward` and
    `input_gradient` (`aiperf.network.science.Passes`). The run directory has the networks' files.
    """

    trial: Trial
    replica: Number
    workload: Name
    instance: Number
    size: Name
    framework: Name
    """`training.framework`: results of different ones are different benchmarks."""
    networks: dict[str, str]
    """Hashes of the architectures, by name."""
    training_passes: tuple[dict[str, str | Whole], ...]
    """Passes of an image that is trained."""
    evaluation_passes: tuple[dict[str, str | Whole], ...]
    """Passes of an image that is evaluated."""
    further_training: Many
    """Operations outside of networks, of an image that is trained: RoI-align."""
    further_evaluation: Many
    target: dict[str, float]
    """Values that the measures of one epoch must reach together."""
    higher: bool
    """True if a higher measure is better."""
    hyperparameters: dict[str, Whole | float | str]
    epochs: Number
    """Upper limit for the epochs."""
    precision: Name
    trainer: Name
    dataset: Name
    generated: bool
    """True if the data set was generated and not observed."""
    fingerprint: Name | None = None
    resumes: Trial | None = None


class TrialBuilt(Body, BuiltFacts, tag="trial_built", frozen=True, kw_only=True):
    """Replica: the trainer has built the trial's model."""

    trial: Trial


class PhaseBegan(Body, tag="phase", frozen=True, kw_only=True):
    """Replica: a phase begins; the one before it ends."""

    replica: Number
    trial: Trial | None
    phase: Phase


class ProgressMade(Body, ProgressFacts, tag="progress", frozen=True, kw_only=True):
    """Replica: images of the current epoch so far."""

    trial: Trial


class EpochCompleted(Body, EpochFacts, tag="epoch", frozen=True, kw_only=True):
    """Replica: an epoch is complete."""

    trial: Trial


class GroupExchanged(Body, ExchangeFacts, tag="exchanged", frozen=True, kw_only=True):
    """Replica: what a group of a hybrid training exchanged with the servers in an epoch."""

    trial: Trial


class ServerServed(Body, ServerFacts, tag="served", frozen=True, kw_only=True):
    """Replica: what a parameter server of a hybrid training did in an epoch."""

    trial: Trial


class TrialEnded(Body, tag="trial_ended", frozen=True, kw_only=True):
    """Replica: a training ended well. `stopped` is by the end of the run.

    The search uses `predicted_accuracy` in place of the measured one, in warm-up rounds only.
    """

    trial: Trial
    reason: Literal["completed", "early_stop", "stopped"]
    predicted_accuracy: float | None = None


class TrialFailed(Body, tag="trial_failed", frozen=True, kw_only=True):
    """Replica: a training failed. Completed epochs count, the unfinished one does not."""

    trial: Trial
    replica: Number
    kind: Name
    reason: str


class EpochWitnessed(Body, tag="epoch_witnessed", frozen=True, kw_only=True):
    """Primary: it heard of an epoch over the replica's pipe, at the time of this record.

    The epoch's record is number `sequence` of `writer`; `digest` is the SHA-256 of its line.
    """

    trial: Trial
    epoch: Number
    writer: Name
    sequence: Many
    digest: Name


class TrialClosed(Body, tag="trial_closed", frozen=True, kw_only=True):
    """Primary: a trial is over, and this is the last record of its writer that is known of.

    `sequence` and `digest` (SHA-256 of the line) are None if the replica was lost before it
    reported any. A trial that its replica's end interrupted is "lost"; one that the end of the run
    stopped is "stopped".
    """

    trial: Trial
    how: Literal["completed", "failed", "cancelled", "stopped", "lost"]
    writer: Name
    sequence: Many | None = None
    digest: Name | None = None


class PrimaryPaused(Body, tag="primary_paused", frozen=True, kw_only=True):
    """Primary: it stood still until now, suspended or stopped, and hears late of what happened."""

    duration_ms: Duration


class NodeMeasured(Body, tag="node_measured", frozen=True, kw_only=True):
    """Primary: a replica has measured its node with the micro suite before it was ready.

    `digest` is the SHA-256 of the node's file, `micro/NAME` below the run.
    """

    replica: Number
    name: str
    digest: Name


AnyBody = (
    ReplicaReady | ReplicaLost | RunReleased | RunResumed | RunEnded | JobIssued
    | TrialStarted | WorkloadStarted | TrialBuilt | PhaseBegan | ProgressMade | EpochCompleted
    | GroupExchanged | ServerServed | TrialEnded | TrialFailed | EpochWitnessed | TrialClosed
    | PrimaryPaused | NodeMeasured
)  # fmt: skip


def issued(job: Job, replica: int) -> JobIssued:
    """The record of a job that a replica was given."""
    return JobIssued(
        replica=replica, **{name: getattr(job, name) for name in JobIssued.__struct_fields__ if name != "replica"}
    )
