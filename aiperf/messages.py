"""Messages between primary and agent, and agent and trainer: one JSON object per line.

The pipe or socket authenticates and carries them; the end of the pipe means that the other side is
gone.
"""

from __future__ import annotations

import contextlib
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from aiperf.errors import MessageError
from aiperf.facts import EpochFacts, ProgressFacts

_T = TypeVar("_T")

MAX_LINE_BYTES = 1 << 20
"""Longest message; a longer line is an error of the protocol."""

CANCELLED = "cancelled"
"""Kind of the failure of a trial that was cancelled; its replica is not to blame."""

Phase = Literal["search", "start", "build", "train", "evaluate", "checkpoint", "idle"]


class Message(BaseModel):
    """Base of all messages."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ClockRequest(Message):
    """Primary to agent: report your clock.

    Answered at once, so that the round trip bounds the offset.
    """

    type: Literal["clock_request"] = "clock_request"


class ClockReply(Message):
    """Agent to primary: UTC of the agent's clock in milliseconds."""

    type: Literal["clock_reply"] = "clock_reply"
    utc_ms: int


class Ready(Message):
    """Agent to primary: this replica can take jobs.

    `node` describes the machine for system.json.
    """

    type: Literal["ready"] = "ready"
    writer: str
    version: str
    accelerators: int
    node: dict[str, str | int | float | None]


class Unable(Message):
    """Agent to primary: this replica cannot work; the process ends after it."""

    type: Literal["unable"] = "unable"
    reason: str


class Job(Message):
    """Primary to agent: do one training of a round. Only the primary issues trial ids.

    `point` 0 is the round's own architecture with the parent's best hyperparameters; higher ones
    try other hyperparameters on the architecture of trial `base`.
    """

    type: Literal["job"] = "job"
    trial: int
    round: int
    seed: int
    point: int = 0
    base: int | None = None
    resumes: int | None = None
    """An interrupted trial to resume: its architecture, its hyperparameters, its last kept epoch.
    """


class Cancel(Message):
    """Primary to agent: end this trial as failed; the next job follows.

    A trial that is over already is left alone.
    """

    type: Literal["cancel"] = "cancel"
    trial: int
    reason: str


class Stop(Message):
    """Primary to agent: end the trial in progress, write what is known, and exit."""

    type: Literal["stop"] = "stop"
    reason: str


class Alive(Message):
    """Agent to primary: a heartbeat, so that a node that vanishes is noticed."""

    type: Literal["alive"] = "alive"


class Started(Message):
    """Agent to primary: what the job trains, and what it costs. The records say the same."""

    type: Literal["started"] = "started"
    trial: int
    architecture: str
    parent: str | None
    hyperparameters: dict[str, int | float | str]
    epochs: int
    operations_per_image: int
    """Forward and backward."""
    depth: int
    weights: int


class Progress(Message):
    """Agent to primary: progress of the current trial, for the live view only."""

    type: Literal["progress"] = "progress"
    trial: int
    phase: Phase
    epoch: int = 0
    epochs: int = 0
    accuracy: float | None = None
    operations: int = 0


class Finished(Message):
    """Agent to primary: the job is over; the records say the rest. `kind` is that of a failure."""

    type: Literal["finished"] = "finished"
    trial: int
    completed: bool
    reason: str
    kind: str = ""


class InheritedWeights(Message):
    """The start of a child: its parent's architecture and weights, and the morphs between them."""

    architecture_path: str
    weights_path: str
    morphs: tuple[dict[str, str | int], ...]
    noise: float


class TrainRequest(Message):
    """Agent to trainer: what to prepare. Paths are on the shared file system."""

    type: Literal["train"] = "train"
    architecture_path: str
    architecture_hash: str | None = None
    """The hash of the architecture that the file must hold; None: any."""
    dataset: str
    data_dir: str | None = None
    synthetic_input: bool = False
    """Images made on the device in place of the data set's, to separate compute from input."""
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
    momentum: float
    label_smoothing: float
    precision: str
    xla: bool
    progress_interval_s: float


class Begin(Message):
    """Agent to trainer: train what is warm, as this trial. The accelerators are free now."""

    type: Literal["begin"] = "begin"
    trial: int
    inherited: InheritedWeights | None = None
    """The start of the training; None: He initialisation."""
    save_weights_path: str | None = None
    """File for the weights of the best epoch; None: they are not kept."""
    checkpoint_path: str | None = None
    """File for the state after an epoch."""
    restore: bool = False
    """True if the file holds the state of an interrupted training, to resume from."""
    checkpoint_interval_s: float = 0.0


class TrainerPhase(Message):
    """Trainer to agent: a phase begins.

    Times of trainer messages are on the node's monotonic clock.
    """

    type: Literal["phase"] = "phase"
    monotonic_ms: int
    phase: Phase


class TrainerReady(Message):
    """Trainer to agent: the model is built and warm, and the first images are there."""

    type: Literal["trainer_ready"] = "trainer_ready"
    monotonic_ms: int


class TrainerProgress(Message):
    """Trainer to agent: images of the current epoch so far."""

    type: Literal["trainer_progress"] = "trainer_progress"
    monotonic_ms: int
    facts: ProgressFacts


class TrainerEpoch(Message):
    """Trainer to agent: an epoch is complete, in whole images."""

    type: Literal["epoch"] = "epoch"
    monotonic_ms: int
    facts: EpochFacts


class TrainerDone(Message):
    """Trainer to agent: the training is over; `early` if patience ended it."""

    type: Literal["done"] = "done"
    monotonic_ms: int
    early: bool


class TrainerFailed(Message):
    """Trainer to agent: the training cannot continue.

    Ranks other than 0 write it into their log.
    """

    type: Literal["failed"] = "failed"
    monotonic_ms: int
    rank: int = 0
    kind: str
    reason: str


ToAgent = ClockRequest | Job | Cancel | Stop
ToPrimary = Alive | ClockReply | Ready | Unable | Started | Progress | Finished
FromTrainer = TrainerPhase | TrainerReady | TrainerProgress | TrainerEpoch | TrainerDone | TrainerFailed

_TO_AGENT: TypeAdapter[ToAgent] = TypeAdapter(Annotated[ToAgent, Field(discriminator="type")])
_TO_PRIMARY: TypeAdapter[ToPrimary] = TypeAdapter(Annotated[ToPrimary, Field(discriminator="type")])
_FROM_TRAINER: TypeAdapter[FromTrainer] = TypeAdapter(Annotated[FromTrainer, Field(discriminator="type")])


def encode(message: Message) -> bytes:
    """One line of JSON."""
    return message.model_dump_json().encode() + b"\n"


_FAILURE = '{"type":"failed"'
"""The beginning of an encoded TrainerFailed."""


def failures_in(text: str) -> list[TrainerFailed]:
    """Failures that ranks other than 0 wrote into a log, with or without a starter's prefix."""
    found = []
    for line in text.splitlines():
        start = line.find(_FAILURE)
        if start >= 0:
            with contextlib.suppress(MessageError):
                message = decode_from_trainer(line[start:].encode())
                assert isinstance(message, TrainerFailed)
                found.append(message)
    return found


def decode_to_agent(line: bytes) -> ToAgent:
    """A message to an agent. Raises MessageError."""
    return decode(_TO_AGENT, line)


def decode_to_primary(line: bytes) -> ToPrimary:
    """A message to the primary. Raises MessageError."""
    return decode(_TO_PRIMARY, line)


def decode_from_trainer(line: bytes) -> FromTrainer:
    """A message from a trainer. Raises MessageError."""
    return decode(_FROM_TRAINER, line)


def decode_train_request(line: bytes) -> TrainRequest:
    """A message to a trainer. Raises MessageError."""
    return decode(TypeAdapter(TrainRequest), line)


def decode_begin(line: bytes) -> Begin:
    """The second message to a trainer. Raises MessageError."""
    return decode(TypeAdapter(Begin), line)


def decode(adapter: TypeAdapter[_T], line: bytes) -> _T:
    """A message of one of the kinds that `adapter` knows.

    Raises MessageError with what is wrong.
    """
    try:
        return adapter.validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        shown = line[:200].decode(errors="replace")
        raise MessageError(f"no message of the protocol: {place} {first['msg']} in {shown!r}") from None
