"""Records of the history list: a line of JSON each, with writer, sequence number and checksum.

The checksum (CRC-32 of everything before it in the line) is the last key: it detects all damage.
"""

from __future__ import annotations

import dataclasses
import json
import re
import zlib
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass
from typing_extensions import TypedDict

from aiperf.clock import format_utc, parse_utc
from aiperf.errors import RecordDamagedError
from aiperf.facts import EpochFacts, ProgressFacts
from aiperf.messages import Phase

VERSION = 1
_CHECKSUM_KEY = b',"crc32":"'
_TAIL_BYTES = len(_CHECKSUM_KEY) + 8 + len(b'"}')


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


@dataclass(frozen=True, slots=True, kw_only=True, config=STRICT)
class RunEnded:
    """Primary: the run is over, for the given reason; work until `end_ms` counts."""

    type: Literal["run_ended"] = "run_ended"
    reason: Literal["deadline", "interrupted", "no_replicas"]
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


AnyBody = (
    ReplicaReady | ReplicaLost | RunReleased | RunResumed | RunEnded | JobIssued
    | TrialStarted | PhaseBegan | ProgressMade | EpochCompleted | TrialEnded | TrialFailed
)  # fmt: skip


class _Line(TypedDict):
    version: Literal[1]
    writer: str
    sequence: int
    time: str
    monotonic_ms: int
    data: Annotated[AnyBody, Field(discriminator="type")]


_BODY: TypeAdapter[AnyBody] = TypeAdapter(AnyBody)
_LINE: TypeAdapter[_Line] = TypeAdapter(_Line)


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """One record: its writer, its number, its times on the writer's clock, and its body."""

    writer: str
    sequence: int
    time_ms: int
    monotonic_ms: int
    body: AnyBody


def encode_record(record: Record) -> bytes:
    """The record as one line, checksum last."""
    document = {
        "version": VERSION,
        "writer": record.writer,
        "sequence": record.sequence,
        "time": format_utc(record.time_ms),
        "monotonic_ms": record.monotonic_ms,
        "data": _data_of(record.body),
    }
    head = json.dumps(document, separators=(",", ":"))[:-1].encode()
    return head + _CHECKSUM_KEY + b'%08x"}\n' % zlib.crc32(head)


def _data_of(body: AnyBody) -> dict[str, Any]:
    data: dict[str, Any] = _BODY.dump_python(body, mode="json")
    if isinstance(body, ProgressMade | EpochCompleted):
        # Type and trial come first, so that the start of a line identifies it among millions.
        data = {"type": body.type, "trial": body.trial, **data}
    if isinstance(body, EpochCompleted):
        # A workload has one of the two; the other says nothing, and older versions do not know it.
        data = {name: value for name, value in data.items() if value is not None or name not in _EITHER}
    return data


_EITHER = ("correct", "measured_quality")
"""Ways to measure the quality of an epoch."""


def decode_record(line: bytes) -> Record:
    """A record from its line. Raises RecordDamagedError with the reason."""
    head, tail = _split_checksum(line)
    if b"%08x" % zlib.crc32(head) != tail:
        raise RecordDamagedError("the checksum does not fit: the line was changed or torn")
    try:
        found = _LINE.validate_json(head + b"}")
        time_ms = parse_utc(found["time"])
    except ValidationError as error:
        raise RecordDamagedError(_describe(error)) from None
    except ValueError as error:
        raise RecordDamagedError(f"is not a record: {error!r}") from None
    return Record(found["writer"], found["sequence"], time_ms, found["monotonic_ms"], found["data"])


_PROGRESS_LINE = re.compile(
    rb'\{"version":1,"writer":"[\w-]+","sequence":\d+,"time":"([\dT:.Z-]{24})","monotonic_ms":-?\d+,'
    rb'"data":\{"type":"progress","trial":(\d+),"epoch":(\d+),"images_trained":(\d+),'
    rb'"images_evaluated":(\d+)\},"crc32":"([0-9a-f]{8})"\}'
)
"""A progress report, byte for byte as `encode_record` writes it."""


ScannedProgress = tuple[int, int, tuple[int, int, int]]
"""Trial, UTC milliseconds on the writer's clock, and `ProgressFacts.position`."""


def scan_progress(line: bytes) -> ScannedProgress | None:
    """Read a progress report, without its newline, several times faster than `decode_record` does.

    None if it is any other record, or is not exactly as `encode_record` writes it.
    """
    found = _PROGRESS_LINE.fullmatch(line)
    if found is None:
        return None
    time, trial, epoch, trained, evaluated, checksum = found.groups()
    if b"%08x" % zlib.crc32(line[:-_TAIL_BYTES]) != checksum:
        return None
    return int(trial), parse_utc(time.decode()), (int(epoch), int(trained), int(evaluated))


def _describe(error: ValidationError) -> str:
    """The problem of a line whose checksum fits: most likely another version wrote it."""
    problems = error.errors(include_url=False)
    version = next((item["input"] for item in problems if item["loc"] == ("version",)), None)
    if version is not None and not isinstance(version, dict):
        return f"record version {version!r}; this program reads version {VERSION}"
    return f"is not a record: {'.'.join(map(str, problems[0]['loc']))}: {problems[0]['msg']}"


def _split_checksum(line: bytes) -> tuple[bytes, bytes]:
    text = line.rstrip(b"\n")
    head, tail = text[:-_TAIL_BYTES], text[-_TAIL_BYTES:]
    if not tail.startswith(_CHECKSUM_KEY) or not tail.endswith(b'"}'):
        raise RecordDamagedError("the line does not end with a checksum")
    return head, tail[len(_CHECKSUM_KEY) : -2]
