"""The examination of a node before a run: the request, and the facts that come back.

The primary asks (`aiperf doctor`), a program on each node answers, one line of JSON each.
"""

from typing import Any

import msgspec
from msgspec import field
from msgspec.json import Decoder

from aiperf.config.settings import RunConfig
from aiperf.wire.lines import decode
from aiperf.wire.messages import ClockRequest, Message

NO_PROBE = "no probe was asked for"
"""Reason for untrained steps if the request asks for none."""


class ExamineRequest(Message, tag="examine", frozen=True, kw_only=True):
    """The first line to the program; requests for its clock follow."""

    config: RunConfig
    folder: str
    """A scratch directory on the file system of the run, which every node must see."""
    steps: int
    """Training steps of the probe; 0: none."""


class BeginExamination(Message, tag="begin_examination", frozen=True, kw_only=True):
    """The last line to the program: the clock is known, and nothing disturbs that any more."""


class FrameworkFacts(Message, tag=False, frozen=True, kw_only=True):
    """The framework as it finds itself on the node, in a process of its own."""

    version: str
    devices: tuple[str, ...]
    """Accelerators by the framework's names."""
    horovod: str | None
    """Version; None: not installed, or it cannot be loaded (`horovod_problem`)."""
    horovod_problem: str | None = None
    built_for: tuple[str, ...] = ()
    """Controllers that Horovod was built with: mpi, gloo, nccl."""


class MemoryFacts(Message, tag=False, frozen=True, kw_only=True):
    """The memory of a training of the initial architecture, in bytes."""

    batch: int
    """Images per rank and step."""
    needed: int
    """Bytes needed by the estimate that also limits the search."""
    limit: int | None
    """Bytes that may be used; None: nothing limits them."""
    available: int
    """Bytes of the node's main memory that are free at the moment."""
    largest_batch: int
    """Images a step that fit into the limit; 0: none."""
    refusal: str | None
    """Reason why the initial architecture does not fit; None: it does."""


class ProbeFacts(Message, tag=False, frozen=True, kw_only=True):
    """The training of a few steps, with the ranks that a run would have."""

    train_images: int
    """Training images of an epoch."""
    validation_images: int
    steps: int
    images: int
    """Images that all ranks trained in these steps."""
    seconds: float
    """Duration of these steps without the first one, which is slower."""
    start_s: float
    """Seconds from the start of the ranks until they were ready."""
    devices: tuple[str, ...]
    """Device of each rank."""
    compiled: str | None = None
    """The compiled parts of the steps, and what could not be compiled (`BuiltFacts`)."""


class Examination(Message, tag="examination", frozen=True, kw_only=True):
    """Facts that a node could find out. An empty problem means that there is none."""

    replica: int
    node: dict[str, str | int | float | None]
    nodes: int
    """Nodes of the replica; all but the first are seen by the probe only."""
    address: str | None
    """Address of the node's own name; None: the name cannot be resolved."""
    unable: str | None
    """Reason why the agent would refuse to work."""
    accelerators: tuple[str, ...]
    """The replica's own, by the driver."""
    precision: str
    ranks: int
    starter: str
    starter_problem: str | None
    fingerprint: str | None
    data_problem: str | None
    memory: MemoryFacts | None
    parameters: int | None
    """Number of parameters of the initial architecture."""
    initial_operations: int | None
    """Operations to train the initial architecture on one image."""
    folder_problem: str | None
    free_bytes: int | None
    """Free space of the run's file system, as the node sees it."""
    framework: FrameworkFacts | None
    framework_problem: str | None
    frameworks: dict[str, str] = field(default_factory=dict)
    """The other installed frameworks by name: version and devices; empty without a probe."""
    probe: ProbeFacts | None
    probe_problem: str | None
    notes: tuple[str, ...] = ()
    """Peculiarities of the node that a run copes with, in words."""
    interfaces: tuple[str, ...] = ()
    """Network interfaces that have an address; empty: not known."""
    hard_links: bool = True
    """False if the run's file system makes none."""
    exclusive: bool = False
    """True if one process at a time may use an accelerator of the replica's."""
    probe_kind: str | None = None
    """Kind of the probe's failure, as a trial's."""
    probe_skipped: str | None
    """Reason why the probe was not tried."""


def _configuration(kind: type[RunConfig], value: Any) -> RunConfig:
    return kind.model_validate(value, strict=False)


_REQUEST = Decoder(ExamineRequest, dec_hook=_configuration)
_ORDERS: Decoder[ClockRequest | BeginExamination] = Decoder(ClockRequest | BeginExamination)
_EXAMINATION = Decoder(Examination)


def write_request(request: ExamineRequest) -> bytes:
    """The request as a line."""
    return msgspec.json.encode(request, enc_hook=lambda config: config.model_dump(mode="json")) + b"\n"


def read_order(line: bytes) -> ClockRequest | BeginExamination:
    """A line after the request. Raises MessageError."""
    return decode(_ORDERS, line)


def read_request(line: bytes) -> ExamineRequest:
    """The request of a line. Raises MessageError."""
    return decode(_REQUEST, line)


def read_examination(line: bytes) -> Examination:
    """The facts of a line. Raises MessageError."""
    return decode(_EXAMINATION, line)
