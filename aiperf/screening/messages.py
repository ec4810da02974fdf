"""Messages between a screening and its nodes: a request, then orders, each with one answer.

The primary asks (`aiperf screen`), a program on each node answers, one line of JSON each. The end
of the input ends the program.
"""

import re
from typing import Any, Literal

import msgspec
from msgspec import field
from msgspec.json import Decoder

from aiperf.config.settings import RunConfig
from aiperf.errors import MessageError
from aiperf.wire.lines import MESSAGE_BEGINS, decode
from aiperf.wire.messages import Message

WHOLE_NODE = "node"
"""Device of a measure that all devices of a node make together."""

CPUS = "cpu"
"""Device of all CPUs of a node's share."""

_KIND_OF_CPUS = re.compile(r"(.*), (\d{1,6}) CPUs", re.DOTALL)


def kind_of_cpus(model: str, number: int) -> str:
    """The kind of this many CPUs of a model: a share of as many is its equal."""
    return f"{model}, {number} CPUs"


def model_and_number(kind: str) -> tuple[str, int]:
    """The model and the number of a kind of CPUs; of another kind itself, and 0."""
    found = _KIND_OF_CPUS.fullmatch(kind)
    return (found[1], int(found[2])) if found is not None else (kind, 0)


STORAGE = "storage"
"""Device, and kind, of the measures of a node's file systems."""

NETWORK = "network"
"""Device of the measures of a node's network."""

WORKING = "measuring"
"""Measure of a row whose problem is that a process, or all of a node's work, has failed."""

READY = "ready"
"""Measure of the row by which a process says that it can begin."""

MOST_ROWS = 100_000
"""Most rows of an answer."""


class ScreenRequest(Message, tag="screen", frozen=True, kw_only=True):
    """The first line to the program."""

    config: RunConfig
    folder: str
    """A scratch directory on the file system of the run, which every node must see."""
    quick: bool
    devices: tuple[str, ...] = ()
    """Devices that are measured, such as `cpu` or `gpu3`; none: all."""
    steps: int = 0
    """Training steps of the probe; 0: none."""


class MeasureDevices(Message, tag="measure_devices", frozen=True, kw_only=True):
    """Order to measure every device of the node, all at once."""


Collective = Literal["all_reduce", "all_gather", "all_to_all", "send_receive"]


class Meet(Message, tag="meet", frozen=True, kw_only=True):
    """Order to exchange tensors with the other ranks of a group."""

    rank: int
    size: int
    token: str
    """Secret by which the ranks of a group know each other."""
    limit_s: float
    """Longest wait for the others, and for an exchange."""
    quick: bool
    addresses: tuple[str, ...] = ()
    """Addresses of rank 0; none for rank 0 itself."""
    port: int = 0
    one_host: bool = False
    """True if all ranks are on one host."""
    inside: bool = False
    """True if the node starts all `size` ranks itself, one for each of its accelerators."""


class Listening(Message, tag="listening", frozen=True, kw_only=True):
    """First answer of rank 0 to Meet: the others may come."""

    addresses: tuple[str, ...]
    port: int
    host: str


class Timed(Message, tag="timed", frozen=True, kw_only=True):
    """The time of a collective."""

    collective: Collective
    """Operation: `all_reduce`, `all_gather`, `all_to_all` or `send_receive`."""
    size: int
    """Bytes, as nccl-tests counts them."""
    seconds: float
    """Median of the blocks."""
    spread: float = 0.0
    """(90th - 10th percentile) / median of the blocks."""


class Exchanged(Message, tag="exchanged", frozen=True, kw_only=True):
    """Last answer to Meet."""

    library: str
    times: tuple[Timed, ...] = ()
    problem: str | None = None


class MeasureStorage(Message, tag="measure_storage", frozen=True, kw_only=True):
    """Order to measure the file systems of data set and run."""


class Present(Message, tag="present", frozen=True, kw_only=True):
    """Answer to the request: the node is there."""

    host: str
    node: dict[str, str | int | float | None]
    devices: tuple[str, ...]
    """All devices of its share of the node, also those that are not measured."""


class Row(Message, tag="row", frozen=True, kw_only=True):
    """One measure of one device: a value, or the reason why there is none."""

    device: str
    """Device of the node, such as `gpu3` or `cpu`; `node`: all of them together."""
    kind: str
    """Model and size of the device: only devices of one kind are compared."""
    measure: str
    """Name of the measure."""
    value: float | None = None
    """Operations, bytes or images per second."""
    spread: float = 0.0
    """(90th - 10th percentile) / median of the blocks of the measurement."""
    problem: str | None = None
    """Reason why there is no value, or why it is doubtful."""


class Sheet(Message, tag="sheet", frozen=True, kw_only=True):
    """Answer to an order: rows, and facts of devices that may explain them."""

    rows: tuple[Row, ...]
    """The measures of all devices of the node."""
    facts: dict[str, dict[str, float]] = field(default_factory=dict)
    """Facts by device (`aiperf.screening.judgement.FACTS`)."""


def _configuration(kind: type[RunConfig], value: Any) -> RunConfig:
    return kind.model_validate(value, strict=False)


_REQUEST = Decoder(ScreenRequest, dec_hook=_configuration)
Order = MeasureDevices | MeasureStorage | Meet
Answer = Present | Sheet | Listening | Exchanged

_ORDER: Decoder[Order] = Decoder(Order)
_MEET = Decoder(Meet)
_ANSWER: Decoder[Answer] = Decoder(Answer)
_EXCHANGE: Decoder[Listening | Exchanged] = Decoder(Listening | Exchanged)
_ROW = Decoder(Row)


def write_request(request: ScreenRequest) -> bytes:
    """The request as a line."""
    return msgspec.json.encode(request, enc_hook=lambda config: config.model_dump(mode="json")) + b"\n"


def read_request(line: bytes) -> ScreenRequest:
    """The request of a line. Raises MessageError."""
    return decode(_REQUEST, line)


def read_order(line: bytes) -> Order:
    """A line after the request. Raises MessageError."""
    return decode(_ORDER, line)


def read_row(line: bytes) -> Row:
    """A row of a measuring process. Raises MessageError."""
    return decode(_ROW, line)


def read_meet(line: bytes) -> Meet:
    """A line to a process that exchanges. Raises MessageError."""
    return decode(_MEET, line)


def read_exchange(line: bytes) -> Listening | Exchanged:
    """A line of a process that exchanges. Raises MessageError."""
    return decode(_EXCHANGE, line)


def read_answer(line: bytes, first: bool) -> Answer | None:
    """The answer of a line; before the first one, None for talk of start files and prologs.

    Raises MessageError for a line that is neither.
    """
    start = line.find(MESSAGE_BEGINS) if first else 0
    if start < 0:
        return None
    answer = decode(_ANSWER, line[start:])
    if isinstance(answer, Sheet) and len(answer.rows) > MOST_ROWS:
        raise MessageError(f"{len(answer.rows)} rows; at most {MOST_ROWS} are read")
    return answer
