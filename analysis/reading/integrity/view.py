"""A run as the checks see it: records with their places, and an index of trials and writers."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np

from aiperf.config.datasets import IMAGENET, IMAGES, IMAGES_BATCH
from aiperf.config.settings import RunConfig
from aiperf.config.space import Hyperparameters
from aiperf.errors import AiperfError
from aiperf.network.architecture import Architecture
from aiperf.records.bodies import (
    AnyBody,
    EpochCompleted,
    EpochWitnessed,
    GroupExchanged,
    JobIssued,
    PrimaryPaused,
    ReplicaLost,
    ReplicaReady,
    ServerServed,
    TrialBuilt,
    TrialClosed,
    TrialEnded,
    TrialFailed,
    TrialStarted,
    WorkloadStarted,
)
from aiperf.records.columns import (
    EPOCH,
    PLACE,
    RECORD,
    SEQUENCE,
    TIME,
    TRIAL,
    Columns,
    Epochs,
    Numbers,
    Witnesses,
    blocks_of,
    rows_of,
    text_of,
)
from aiperf.records.damage import Damage, DamageKind
from aiperf.records.ledger import Ledger
from aiperf.records.record import Record
from aiperf.run_directory.manifest import Manifest
from analysis.reading.integrity.lines import LineFacts
from search_space.limits import Limits
from search_space.resnet import resnet

StartT = TypeVar("StartT", TrialStarted, WorkloadStarted)

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Placed(Generic[T_co]):
    """A body and its place: file below the run, line from 1, UTC ms on the writer's clock."""

    file: str
    line: int
    sequence: int
    time_ms: int
    body: T_co

    def damage(self, kind: DamageKind, found: str, expected: str = "") -> Damage:
        """A damage at this place."""
        return Damage(self.file, self.line, kind, found, expected)


@dataclass(frozen=True, slots=True)
class WriterRecords:
    """One writer's records, in the order of their lines, and what its lines show.

    `records` are the rare ones, `columns` the frequent ones, without needless reports of progress.
    `unfinished` is True if the last line is incomplete.
    """

    writer: str
    records: tuple[Record, ...] = ()
    numbers: tuple[int, ...] = ()
    """The line of each record."""
    lines: LineFacts = field(default_factory=LineFacts)
    damages: tuple[Damage, ...] = ()
    """Lines that cannot be decoded."""
    unfinished: bool = False
    columns: Columns = field(default_factory=Columns)
    repeated: Numbers = field(default_factory=lambda: np.zeros(0, np.int64), compare=False)
    """Places of lines with the sequence number of an earlier one: the state of a run lacks them."""

    @property
    def file(self) -> str:
        """The file, relative to the run directory."""
        return f"history/{self.writer}.jsonl"

    def moments(self) -> Numbers:
        """Line and time of every record, on the writer's clock, in no order."""
        own = [(number, record.time_ms) for number, record in zip(self.numbers, self.records, strict=True)]
        parts = [np.array(own, np.int64).reshape(-1, 2), *(rows[:, (PLACE, TIME)] for rows in self.columns.tables())]
        # Columns count lines from 0, damages from 1. The index by two columns has made copies.
        for part in parts[1:]:
            part[:, 0] += 1
        return np.concatenate(parts)

    def placed(self) -> Iterator[Placed[AnyBody]]:
        """Every rare record with its place."""
        for number, record in zip(self.numbers, self.records, strict=True):
            yield Placed(self.file, number, record.sequence, record.time_ms, record.body)


@dataclass(frozen=True, slots=True)
class WitnessedEpochs:
    """The epochs that were heard of; the set of a trial is made when it is asked for."""

    rows: Numbers
    """Trial and epoch, by trial."""
    blocks: dict[int, tuple[int, int]]
    """The rows of each trial."""

    def __getitem__(self, trial: int) -> set[int]:
        begin, end = self.blocks.get(trial, (0, 0))
        return {*self.rows[begin:end, 1].tolist()}


@dataclass
class Witnessed:
    """Epochs that the primaries heard of. Add everything before asking."""

    files: list[tuple[str, Witnesses]] = field(default_factory=list)
    """The primaries' files, in order, with their witnesses."""

    def add(self, file: str, heard: Witnesses) -> None:
        """Take in the next file."""
        self.files.append((file, heard))

    @cached_property
    def _by_writer(self) -> dict[str, list[tuple[int, Numbers]]]:
        """Rows of each writer's witnesses, with the numbers of the files that they are in."""
        found: dict[str, list[tuple[int, Numbers]]] = {}
        for number, (_, heard) in enumerate(self.files):
            # One sort for all writers: a mask for each would look at all rows once per replica.
            names, which = np.unique(heard.writers, return_inverse=True)
            order = np.argsort(which, kind="stable")
            for name, begin, end in blocks_of(which[order].astype(np.int64)):
                found.setdefault(text_of(names[name]), []).append((number, order[begin:end].astype(np.int64)))
        return found

    def writers(self) -> list[str]:
        """The writers whose epochs were heard of, by name."""
        return sorted(self._by_writer)

    def of(self, writer: str) -> Iterator[tuple[int, Witnesses]]:
        """The witnesses of a writer's epochs: the number of each primary's file, and its rows."""
        for number, rows in self._by_writer.get(writer, ()):
            yield number, self.files[number][1].only(rows)

    def records_of(self, writer: str) -> set[int]:
        """The numbers of a writer's records that were heard of."""
        return {record for _, heard in self.of(writer) for record in heard.rows[:, RECORD].tolist()}

    @cached_property
    def epochs(self) -> WitnessedEpochs:
        """The epochs that were heard of, by trial."""
        rows = np.concatenate([rows_of(2), *(heard.rows[:, (TRIAL, EPOCH)] for _, heard in self.files)])
        # One array and its blocks: sets for all trials of a long run would take most of the memory.
        rows = rows[np.argsort(rows[:, 0], kind="stable")]
        return WitnessedEpochs(rows, {trial: (begin, end) for trial, begin, end in blocks_of(rows[:, 0])})


def start_of(writer: str) -> int:
    """Number of a writer among the starts of its role, from 1; 0 if its name does not say."""
    number = writer.rpartition("-")[2]
    # Files may have any name, and `int` refuses texts of more than 4,300 digits.
    return int(number) if number.isdecimal() and len(number) < 10 else 0


def replica_of(writer: str) -> int | None:
    """The replica that writes under a name; None if it is not a replica's."""
    role, _, number = writer.rpartition("-")[0].partition("-")
    return int(number) if role == "replica" and number.isdecimal() and len(number) < 10 else None


@dataclass(slots=True)
class WriterSummary:
    """Summary of a file that was read: its length, its chain and its time span (UTC ms)."""

    writer: str
    lines: int
    chained: bool
    first_ms: int | None
    last_ms: int | None

    @property
    def file(self) -> str:
        """The file, relative to the run directory."""
        return f"history/{self.writer}.jsonl"

    @property
    def role(self) -> str:
        """The first part of the name, such as "replica-0003"."""
        return self.writer.rpartition("-")[0]

    @property
    def start(self) -> int:
        """The second part: which start of its role the writer is, from 1; 0 if it is none."""
        return start_of(self.writer)


def summary_of(read: WriterRecords) -> WriterSummary:
    """The summary of a file."""
    times = read.moments()[:, 1]
    first_ms, last_ms = (int(times.min()), int(times.max())) if len(times) else (None, None)
    return WriterSummary(read.writer, read.lines.count, read.lines.chained, first_ms, last_ms)


@dataclass
class PrimaryRecords:
    """Everything that the primaries of a run recorded, in order."""

    files: list[WriterSummary] = field(default_factory=list)
    events: list[tuple[str, Placed[AnyBody]]] = field(default_factory=list)
    """Writer and record, without witnesses."""
    issued: dict[int, list[Placed[JobIssued]]] = field(default_factory=dict)
    """Issued jobs by trial, more than one only if the records are damaged; as the following."""
    closed: dict[int, list[Placed[TrialClosed]]] = field(default_factory=dict)
    witnessed: Witnessed = field(default_factory=Witnessed)
    arrivals: dict[str, list[Placed[ReplicaReady]]] = field(default_factory=dict)
    """Arrivals by writer."""
    losses: list[Placed[ReplicaLost]] = field(default_factory=list)
    pauses: list[Placed[PrimaryPaused]] = field(default_factory=list)
    beginnings: list[Placed[AnyBody]] = field(default_factory=list)
    """The first record of each file."""

    def add(self, read: WriterRecords) -> None:
        """Take in the next primary's file."""
        # Primaries' files are read before those that they speak of: no witness can be of a record
        # that was written after its file was read.
        self.files.append(summary_of(read))
        self.witnessed.add(read.file, read.columns.witnesses)
        self.beginnings += _beginning(read)
        for place in read.placed():
            body = place.body
            self.events.append((read.writer, place))
            if isinstance(body, JobIssued):
                self.issued.setdefault(body.trial, []).append(place)  # type: ignore[arg-type]
            elif isinstance(body, TrialClosed):
                self.closed.setdefault(body.trial, []).append(place)  # type: ignore[arg-type]
            elif isinstance(body, ReplicaReady):
                self.arrivals.setdefault(body.writer, []).append(place)  # type: ignore[arg-type]
            elif isinstance(body, ReplicaLost):
                self.losses.append(place)  # type: ignore[arg-type]
            elif isinstance(body, PrimaryPaused):
                self.pauses.append(place)  # type: ignore[arg-type]

    def paused_ms(self, begin_ms: int, end_ms: int) -> int:
        """Milliseconds of a time span in which the primary stood still."""
        # A pause is recorded at its end.
        spans = ((place.time_ms - place.body.duration_ms, place.time_ms) for place in self.pauses)
        return sum(max(0, min(end_ms, end) - max(begin_ms, begin)) for begin, end in spans)

    @cached_property
    def closings_by_writer(self) -> dict[str, list[Placed[TrialClosed]]]:
        """Closings that name a writer's record."""
        found: dict[str, list[Placed[TrialClosed]]] = {}
        for closings in self.closed.values():
            for closing in closings:
                found.setdefault(closing.body.writer, []).append(closing)
        return found

    def wanted(self, writer: str) -> set[int]:
        """The sequence numbers of a writer whose hashes the primary recorded."""
        # Hashes are kept of these lines only: most lines of a file are reports of progress.
        numbers = self.witnessed.records_of(writer)
        numbers |= {c.body.sequence for c in self.closings_by_writer.get(writer, ()) if c.body.sequence is not None}
        return numbers


def _beginning(read: WriterRecords) -> Iterator[Placed[AnyBody]]:
    """The first record of a primary's file that can be read."""
    heard = placed_witness(read.file, read.columns.witnesses, 0) if len(read.columns.witnesses) else None
    own = next(read.placed(), None)
    # Rare records and witnesses are kept apart: either may be the first line.
    if heard is not None and (own is None or heard.line < own.line):
        yield heard
    elif own is not None:
        yield own


def placed_witness(file: str, heard: Witnesses, row: int) -> Placed[EpochWitnessed]:
    """A witness of a file with its place, as an object."""
    place, sequence, time_ms, _, trial, epoch, record = heard.rows[row].tolist()
    writer, digest = text_of(heard.writers[row]), text_of(heard.digests[row])
    body = EpochWitnessed(trial=trial, epoch=epoch, writer=writer, sequence=record, digest=digest)
    return Placed(file, place + 1, sequence, time_ms, body)


def placed_epoch(file: str, epochs: Epochs, row: int) -> Placed[EpochCompleted]:
    """An epoch of a file with its place, as an object."""
    place, sequence, time_ms = epochs.whole[row, (PLACE, SEQUENCE, TIME)].tolist()
    return Placed(file, place + 1, sequence, time_ms, epochs.body(row))


@dataclass(slots=True)
class TrialTrace(Generic[StartT]):
    """A trial's records in the order of its file."""

    trial: int
    writer: str
    started: Placed[StartT]
    built: list[Placed[TrialBuilt]] = field(default_factory=list)
    exchanges: list[Placed[GroupExchanged | ServerServed]] = field(default_factory=list)
    """Exchanges of a hybrid training."""
    ended: Placed[TrialEnded] | None = None
    failed: Placed[TrialFailed] | None = None
    completed: Epochs = field(default_factory=Epochs)

    @property
    def epochs(self) -> list[Placed[EpochCompleted]]:
        """The completed epochs, as objects."""
        return [placed_epoch(self.started.file, self.completed, row) for row in range(len(self.completed))]

    @property
    def first_epoch(self) -> Placed[EpochCompleted] | None:
        """The first epoch."""
        return placed_epoch(self.started.file, self.completed, 0) if len(self.completed) else None


def _batch_size(config: RunConfig) -> int:
    """Images per accelerator and step, also for a data set that is not there."""
    return IMAGES_BATCH if config.run.dataset == IMAGES else config.batch_size


@dataclass
class RunView:
    """A run whose files are all read."""

    manifest: Manifest
    ledger: Ledger
    primary: PrimaryRecords
    writers: dict[str, WriterSummary] = field(default_factory=dict)
    """Replicas' files by writer."""
    trials: dict[int, TrialTrace[TrialStarted]] = field(default_factory=dict)
    models: dict[int, TrialTrace[WorkloadStarted]] = field(default_factory=dict)
    """Trials of scientific workloads."""
    of_workload: dict[str, list[Placed[EpochCompleted]]] = field(default_factory=dict)
    """Every epoch of each workload."""
    limits: dict[tuple[int | None, str], Limits] = field(default_factory=dict)
    """Limits by memory of an accelerator and arithmetic, made when they are first asked for."""
    epoch_images: tuple[int, int] | None = None
    """Images trained and evaluated in an epoch; None: not known yet."""
    digests: dict[str, list[str]] = field(default_factory=dict)
    """The hashes of the entries of each digest that was read, by its primary."""

    @property
    def config(self) -> RunConfig:
        """The configuration of the run."""
        return self.manifest.config

    @cached_property
    def max_epochs(self) -> int:
        """Epochs over which the learning rate falls to 0.

        Here and below, a data set that only its files describe need not be there.
        """
        own = self.config.training.max_epochs
        return own or (IMAGENET if self.config.run.dataset == IMAGES else self.config.dataset).max_epochs

    @cached_property
    def initial(self) -> Architecture | None:
        """The architecture that the search starts from; None if the data set is not known here."""
        depth = int(self.config.search.initial_architecture.removeprefix("resnet"))
        try:
            dataset = self.config.dataset
            return resnet(depth, dataset.image_size, dataset.classes)
        except AiperfError:
            return None

    def defaults(self) -> Hyperparameters:
        """The hyperparameters of a trial that is not tuned."""
        training = self.config.training
        return {
            "batch_size": training.batch_size or _batch_size(self.config),
            "learning_rate": training.learning_rate,
            "momentum": training.momentum,
            "label_smoothing": training.label_smoothing,
        }

    @property
    def is_science(self) -> bool:
        """True if the run trains scientific workloads in place of AutoML."""
        return self.config.run.suite == "science"

    @property
    def unfinished(self) -> bool:
        """True if the run has not ended, or was resumed since."""
        return self.ledger.run_ended is None

    @property
    def chained(self) -> bool:
        """True if every file with a record is chained."""
        return all(file.chained for file in self.all_files())

    def all_files(self) -> Iterable[WriterSummary]:
        """The primaries' files, then the replicas'."""
        return (*self.primary.files, *self.writers.values())

    def corrected(self, writer: str, time_ms: int) -> int:
        """A writer's time on the primary's clock."""
        return self.ledger.corrected(writer, time_ms)
