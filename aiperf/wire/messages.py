"""Messages between primary and agent, and agent and trainer (`aiperf.wire.lines`).

The pipe or socket authenticates and carries them; its end means that the other side is gone.
"""

from typing import Literal

from msgspec import Struct

from aiperf.facts import BuiltFacts, EpochFacts, ExchangeFacts, HybridTraining, Measured, ProgressFacts, ServerFacts

CANCELLED = "cancelled"
"""Kind of the failure of a trial that was cancelled; its replica is not to blame."""

CROWDED = "crowded"
"""Kind of failure: memory was short while the next trial's ranks were warm or warming up."""

UNFIT = "unfit"
"""Kind of the failure of a trial whose machine is not set up for any: its replica ends."""

Phase = Literal["search", "start", "build", "train", "evaluate", "checkpoint", "storage", "idle"]
"""`storage`: the work of the replica waits for a file system that refuses."""


class Message(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type"):
    """Base of all messages."""


class ClockRequest(Message, tag="clock_request", frozen=True, kw_only=True):
    """Primary to agent: report your clock.

    Answered at once, so that the round trip bounds the offset.
    """


class ClockReply(Message, tag="clock_reply", frozen=True, kw_only=True):
    """Agent to primary: UTC of the agent's clock in milliseconds."""

    utc_ms: int


class Ready(Message, tag="ready", frozen=True, kw_only=True):
    """Agent to primary: this replica can take jobs.

    `node` describes the machine for system.json.
    """

    writer: str
    version: str
    accelerators: int
    node: dict[str, str | int | float | None]
    measured: str | None = None
    """SHA-256 of the file in which this replica has put its node's results of the micro suite."""
    unmeasured: str | None = None
    """Reason why a node that this replica was to measure has no results of the suite."""


class Unable(Message, tag="unable", frozen=True, kw_only=True):
    """Agent to primary: this replica cannot work; the process ends after it."""

    reason: str
    storage: bool = False
    """True if it may work again as soon as the run directory can be written."""


class Job(Message, tag="job", frozen=True, kw_only=True):
    """Primary to agent: do one training of a round. Only the primary issues trial ids.

    `point` 0 is the round's own architecture with the parent's best hyperparameters; higher ones
    try other hyperparameters on the architecture of trial `base`.
    """

    trial: int
    round: int
    seed: int
    point: int = 0
    base: int | None = None
    resumes: int | None = None
    """An interrupted trial to resume: its architecture, its hyperparameters, its last kept epoch.
    """
    alone: bool = False
    """No ranks warm up next to this training: next to them it has run out of memory before."""
    claim: int | None = None
    """Number of the primary's claim: an agent refuses a job of a superseded primary."""
    digest: str | None = None
    """The digest to plan from, by the name of its primary; None: there are only raw records."""
    workload: str | None = None
    """The scientific workload to train; None: a training of an AutoML round."""
    instance: int | None = None
    """Number of the model of that workload, from 0."""


class Cancel(Message, tag="cancel", frozen=True, kw_only=True):
    """Primary to agent: end this trial as failed; the next job follows.

    A trial that is over already is left alone.
    """

    trial: int
    reason: str


class Stop(Message, tag="stop", frozen=True, kw_only=True):
    """Primary to agent: end the trial in progress, write what is known, and exit."""

    reason: str


class Alive(Message, tag="alive", frozen=True, kw_only=True):
    """Agent to primary: a heartbeat, so that a node that vanishes is noticed."""


class StorageWait(Message, tag="storage", frozen=True, kw_only=True):
    """Agent to primary: it waits for storage that refuses; an empty reason: it can write again."""

    reason: str


class Started(Message, tag="started", frozen=True, kw_only=True):
    """Agent to primary: what the job trains, and what it costs. The records say the same."""

    trial: int
    architecture: str
    parent: str | None
    morphs: tuple[dict[str, str | int], ...] = ()
    hyperparameters: dict[str, int | float | str]
    epochs: int
    operations_per_image: int
    """Forward and backward."""
    depth: int
    weights: int


class Progress(Message, tag="progress", frozen=True, kw_only=True):
    """Agent to primary: progress of the current trial, for the live view only."""

    trial: int
    phase: Phase
    epoch: int = 0
    epochs: int = 0
    accuracy: float | None = None
    measured: Measured | None = None
    """Measures of a scientific workload, in place of the accuracy."""
    operations: int = 0


class Recorded(Message, tag="recorded", frozen=True, kw_only=True):
    """Agent to primary: an epoch is in the history list, as this record of the agent's writer.

    `digest` is the SHA-256 of its line, `quality` the epoch's; None: not measured.
    """

    trial: int
    epoch: int
    quality: float | None = None
    sequence: int
    digest: str


class Finished(Message, tag="finished", frozen=True, kw_only=True):
    """Agent to primary: the job is over; the records say the rest. `kind` is that of a failure.

    `sequence` and `digest` are those of the last record of the trial.
    """

    trial: int
    completed: bool
    reason: str
    kind: str = ""
    early: bool = False
    """True if patience ended the training."""
    predicted: float | None = None
    """The accuracy that was predicted from it, in warm-up rounds."""
    sequence: int | None = None
    digest: str | None = None


class Closing(Message, tag="closing", frozen=True, kw_only=True):
    """Agent to primary, at its end: the last record of its writer, and the trial that was stopped.

    `trial` is None if none was in progress.
    """

    trial: int | None
    sequence: int | None
    digest: str | None


class InheritedWeights(Message, tag=False, frozen=True, kw_only=True):
    """The start of a child: its parent's architecture and weights, and the morphs between them."""

    architecture_path: str
    weights_path: str
    morphs: tuple[dict[str, str | int], ...]
    noise: float


class _Request(Message, frozen=True, kw_only=True):
    """The fields of every request. Paths are on the shared file system."""

    data_dir: str | None = None
    parallel_decode: int = 48
    shuffle_buffer: int = 8192
    batch_size: int
    """Images per rank and step."""
    epochs: int
    """Epochs of this round."""
    max_epochs: int
    """Epochs over which the learning rate falls to 0."""
    patience: int
    seed: int
    learning_rate: float
    precision: str
    compile: str
    progress_interval_s: float
    hybrid: HybridTraining | None = None
    """Groups and parameter servers; None: all ranks train synchronously."""


class ArchitectureRequest(_Request, tag="train", frozen=True, kw_only=True):
    """Agent to trainer: prepare the training of an architecture."""

    architecture_path: str
    architecture_hash: str | None = None
    """The hash of the architecture that the file must hold; None: any."""
    dataset: str
    synthetic_input: bool = False
    """Images made on the device in place of the data set's, to separate compute from input."""
    decoder: str = "libjpeg"
    """The library that decodes images for frameworks without tf.data (`training.decoder`)."""
    momentum: float
    label_smoothing: float


class WorkloadRequest(_Request, tag="train_workload", frozen=True, kw_only=True):
    """Agent to trainer: prepare the training of a scientific workload."""

    workload: str
    size: str
    stops_at_target: bool = False
    """End after the epoch that reaches the workload's target."""


class Begin(Message, tag="begin", frozen=True, kw_only=True):
    """Agent to trainer: train what is warm, as this trial. The accelerators are free now."""

    trial: int
    inherited: InheritedWeights | None = None
    """The start of the training; None: He initialisation."""
    save_weights_path: str | None = None
    """File for the weights of the best epoch; None: they are not kept."""
    checkpoint_path: str | None = None
    """File for the state after an epoch."""
    restore: int = 0
    """Recorded epochs of the interrupted training to resume from; 0: none.

    A state after a later epoch is not used: its training ran, but its record was cut off.
    """
    states: tuple[str, ...] = ()
    """The hashes of the states of these epochs by their records: no other state is restored."""
    first_ranks: int | None = None
    """Ranks that trained the first of these epochs: rates of science are theirs; None: none."""
    checkpoint_interval_s: float = 0.0
    evidence_path: str | None = None
    """File for the losses and gradient norms of the steps; None: they are not written."""
    only_steps: int | None = None
    """Number of steps after which an audit stops the first epoch, with their evidence written."""
    evaluate_path: str | None = None
    """File of weights that an audit evaluates as epoch 0 without training, after the steps that
    `only_steps` asks for."""
    evaluate_known: int | None = None
    """Seed of a sample of the training images that are then evaluated with these weights, as many
    as there are validation images; their number and the right ones are measures of epoch 0."""


class TrainerPhase(Message, tag="phase", frozen=True, kw_only=True):
    """Trainer to agent: a phase begins.

    Times of trainer messages are on the node's monotonic clock.
    """

    monotonic_ms: int
    phase: Phase


class TrainerReady(Message, tag="trainer_ready", frozen=True, kw_only=True):
    """Trainer to agent: the model is built and warm, and the first images are there."""

    monotonic_ms: int
    built: BuiltFacts | None = None
    """Facts of the built network; None if the program reports none."""


class TrainerProgress(Message, tag="trainer_progress", frozen=True, kw_only=True):
    """Trainer to agent: images of the current epoch so far."""

    monotonic_ms: int
    facts: ProgressFacts


class TrainerEpoch(Message, tag="epoch", frozen=True, kw_only=True):
    """Trainer to agent: an epoch is complete, in whole images."""

    monotonic_ms: int
    facts: EpochFacts


class TrainerExchange(Message, tag="exchange", frozen=True, kw_only=True):
    """Trainer to agent: what groups and servers of a hybrid training did in an epoch.

    That of another group may come after the epoch that group 0 reports, never after TrainerDone.
    """

    monotonic_ms: int
    groups: tuple[ExchangeFacts, ...] = ()
    servers: tuple[ServerFacts, ...] = ()


class TrainerWaits(Message, tag="trainer_waits", frozen=True, kw_only=True):
    """Trainer to agent: rank 0 waits for storage, for this reason; "": it does not any more.

    A thread of it may wait while another one trains.
    """

    monotonic_ms: int
    reason: str


class TrainerDone(Message, tag="done", frozen=True, kw_only=True):
    """Trainer to agent: the training is over; `early` if patience ended it."""

    monotonic_ms: int
    early: bool


class TrainerFailed(Message, tag="failed", frozen=True, kw_only=True):
    """Trainer to agent: the training cannot continue.

    Ranks other than 0 write it into their log.
    """

    monotonic_ms: int
    name: str = "rank 0"
    """The process that failed, in words."""
    group: int = 0
    """Its group in a hybrid training; a server's is none of theirs."""
    kind: str
    reason: str


TrainRequest = ArchitectureRequest | WorkloadRequest
ToAgent = ClockRequest | Job | Cancel | Stop
ToPrimary = Alive | StorageWait | ClockReply | Ready | Unable | Started | Progress | Recorded | Finished | Closing
FromTrainer = (
    TrainerPhase
    | TrainerReady
    | TrainerProgress
    | TrainerEpoch
    | TrainerExchange
    | TrainerWaits
    | TrainerDone
    | TrainerFailed
)
