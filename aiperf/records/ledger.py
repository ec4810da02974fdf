"""The state of a run as a fold over its records: idempotent, and independent of their order.

But for fences (`aiperf.records.fencing`): they must be known before the records that they drop, as
they are if files are read in `reading_order`.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from aiperf.facts import Stamped
from aiperf.records.bodies import (
    GroupExchanged,
    JobIssued,
    NodeMeasured,
    PrimaryPaused,
    ReplicaLost,
    ReplicaReady,
    RunEnded,
    RunReleased,
    RunResumed,
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
    EVALUATED,
    REPLICA,
    SEQUENCE,
    TIME,
    TRAINED,
    TRIAL,
    Columns,
    Numbers,
    blocks_of,
    columns_of,
)
from aiperf.records.cursor import SeenNumbers
from aiperf.records.damage import Damage
from aiperf.records.entries import ReplicaLedger, TrialLedger, when
from aiperf.records.fencing import Fences
from aiperf.records.record import Record

_FURTHEST = (TIME, EVALUATED, TRAINED, EPOCH)
"""The keys by which a report is further than another, the last one first."""


@dataclass
class Ledger:
    """The state of a run. `conflicts` lists records that contradict each other."""

    released: Stamped[RunReleased] | None = None
    ends: set[Stamped[RunEnded]] = field(default_factory=set)
    resumptions: set[Stamped[RunResumed]] = field(default_factory=set)
    trials: dict[int, TrialLedger] = field(default_factory=dict)
    replicas: dict[int, ReplicaLedger] = field(default_factory=dict)
    measured: dict[str, str] = field(default_factory=dict)
    """SHA-256 of the micro suite's results, by their names."""
    offsets_ms: dict[str, int] = field(default_factory=dict)
    last_ms: int = 0
    last_of_writer_ms: dict[str, int] = field(default_factory=dict)
    """The time of each writer's last record, on its clock."""
    conflicts: list[Damage] = field(default_factory=list)
    latest_progress_only: bool = False
    """Keep only the furthest progress report of each trial: a long run has millions of them."""
    fences: Fences = field(default_factory=Fences)
    _seen: dict[str, SeenNumbers] = field(default_factory=dict, repr=False)

    @property
    def run_ended(self) -> Stamped[RunEnded] | None:
        """The end, unless the run was resumed afterwards."""
        end = max(self.ends, key=when, default=None)
        resumed_ms = max(map(when, self.resumptions), default=None)
        return end if end is not None and (resumed_ms is None or resumed_ms < end.time_ms) else None

    @property
    def segments(self) -> int:
        """Segments with clocks of their own: 1, plus 1 for each resumption with a new clock."""
        return 1 + sum(resumption.body.new_clock for resumption in self.resumptions)

    def add(self, records: Iterable[Record]) -> None:
        """Fold records in; a record that was seen before changes nothing."""
        records = tuple(records)
        # Before anything is folded: a fence in this very batch may drop records of it.
        self.fences.learn(records)
        new: dict[str, list[Record]] = {}
        for record in records:
            if not self.fences.drops(record) and self._seen.setdefault(record.writer, SeenNumbers()).add(
                record.sequence
            ):
                new.setdefault(record.writer, []).append(record)
        for writer, own in new.items():
            # Records that come as objects have no lines: their numbers stand for the places, in the
            # same order.
            heads = [(record.sequence, record.sequence, record.time_ms, record.monotonic_ms) for record in own]
            columns = columns_of([record.body for record in own], np.array(heads, np.int64))
            self.fold(writer, [record for record in own if type(record.body) in _FOLDS], columns)

    def fold(self, writer: str, records: Iterable[Record], columns: Columns) -> None:
        """Fold in records of a writer that were not seen before; the frequent ones are columns."""
        times = [int(rows[:, TIME].max()) for rows in columns.tables() if len(rows)]
        for record in records:
            times.append(record.time_ms)
            _FOLDS[type(record.body)](self, record.body, record)
        if not times:
            return
        self.last_ms = max(self.last_ms, *times)
        self.last_of_writer_ms[writer] = max(self.last_of_writer_ms.get(writer, -1), *times)
        for replica, own in _by(columns.phases, REPLICA):
            known = self.replica(replica).phases
            known[writer] = np.concatenate([known[writer], own]) if writer in known else own
        for number, own in _by(columns.progress, TRIAL):
            self._take_progress(self.trial(number), own)
        epochs = columns.epochs.only(np.argsort(columns.epochs.column(TRIAL), kind="stable"))
        # A sort that keeps the order of lines: of two epochs with one number the first one counts.
        for number, begin, end in blocks_of(epochs.column(TRIAL)):
            own_epochs = epochs.only(slice(begin, end))
            for row in self.trial(number).epochs.take(own_epochs):
                place, epoch = own_epochs.whole[row, (SEQUENCE, EPOCH)].tolist()
                self.conflicts.append(_conflict(writer, place, f"trial {number} completed epoch {epoch} twice"))

    def _take_progress(self, trial: TrialLedger, own: Numbers) -> None:
        every = np.concatenate([trial.progress, own]) if len(trial.progress) else own
        if self.latest_progress_only:
            # The last key of `lexsort` is its first criterion.
            every = every[np.lexsort([every[:, column] for column in _FURTHEST])[-1:]]
        trial.progress = every

    def trial(self, trial: int) -> TrialLedger:
        """The ledger of a trial, made at the first mention."""
        return self.trials.get(trial) or self.trials.setdefault(trial, TrialLedger(trial))

    def replica(self, replica: int) -> ReplicaLedger:
        """The ledger of a replica, made at the first mention."""
        return self.replicas.setdefault(replica, ReplicaLedger(replica))

    def corrected(self, writer: str, time_ms: int) -> int:
        """A writer's time on the primary's clock."""
        return time_ms - self.offsets_ms.get(writer, 0)

    def died_ms(self, trial: TrialLedger) -> int | None:
        """Find when a trial failed or its replica or primary was lost, on the primary's clock."""
        moments = []
        if trial.failed is not None:
            moments.append(self.corrected(trial.writer, trial.failed.time_ms))
        if trial.begun is not None and trial.started_ms is not None and not self._ended_by_itself(trial):
            began_ms = self.corrected(trial.writer, trial.started_ms)
            replica = self.replicas.get(trial.begun.replica)
            losses = replica.losses if replica is not None else ()
            # An earlier loss is of an earlier start of the same replica.
            moments += [loss.time_ms for loss in losses if loss.time_ms >= began_ms]
            # A resumption is the only trace that a primary leaves of its death: its replicas died
            # with it.
            moments += [time_ms for time_ms in map(when, self.resumptions) if time_ms >= began_ms]
        return min(moments, default=None)

    def fell_silent_ms(self, trial: TrialLedger) -> int | None:
        """The last record of the replica of a trial in progress, if none came after the run's end.

        A replica that is alive at the end records that it stops. One that is not may have died
        within `run.replica_silence` before, too late for the primary to take it for lost.
        """
        end = self.run_ended
        if end is None or trial.begun is None or trial.ended is not None or trial.failed is not None:
            return None
        last_ms = self.corrected(trial.writer, self.last_of_writer_ms[trial.writer])
        return last_ms if last_ms < end.body.end_ms else None

    @staticmethod
    def _ended_by_itself(trial: TrialLedger) -> bool:
        # An agent that loses its primary stops its trial and records that itself, so an end by
        # "stopped" does not rule a death out.
        return trial.ended is not None and trial.ended.body.reason != "stopped"

    def work_died_ms(self, trial: TrialLedger) -> int | None:
        """Find when the unfinished epoch of a trial was lost, on the primary's clock."""
        died_ms = self.died_ms(trial)
        return self.fell_silent_ms(trial) if died_ms is None else died_ms

    def _replica_ready(self, body: ReplicaReady, record: Record) -> None:
        self.replica(body.replica).arrivals.add(Stamped(record.time_ms, body))
        self.offsets_ms[body.writer] = body.clock_offset_ms

    def _replica_lost(self, body: ReplicaLost, record: Record) -> None:
        self.replica(body.replica).losses.add(Stamped(record.time_ms, body))

    def _run_released(self, body: RunReleased, record: Record) -> None:
        # By time and not by order of arrival: files are read in any order, and some of them again.
        if self.released is None or record.time_ms > self.released.time_ms:
            self.released = Stamped(record.time_ms, body)

    def _job_issued(self, body: JobIssued, record: Record) -> None:
        trial = self.trial(body.trial)
        trial.issued, trial.issued_ms = body, record.time_ms

    def _training_started(self, body: TrialStarted | WorkloadStarted, record: Record) -> None:
        trial = self.trial(body.trial)
        if trial.begun not in (None, body):
            found = f"trial {body.trial} was started twice, by {trial.writer} and {record.writer}"
            self.conflicts.append(_conflict(record.writer, record.sequence, found))
        trial.begun, trial.writer, trial.started_ms = body, record.writer, record.time_ms


def _by(rows: Numbers, column: int) -> Iterator[tuple[int, Numbers]]:
    """The rows of each value of a column."""
    rows = rows[np.argsort(rows[:, column], kind="stable")]
    for value, begin, end in blocks_of(rows[:, column]):
        yield value, rows[begin:end]


def _conflict(writer: str, sequence: int, found: str) -> Damage:
    """A damage at a record, whose line follows from its number in an intact file."""
    return Damage(f"history/{writer}.jsonl", sequence + 1, "conflict", found)


def _run_resumed(ledger: Ledger, body: RunResumed, record: Record) -> None:
    ledger.resumptions.add(Stamped(record.time_ms, body))


def _run_ended(ledger: Ledger, body: RunEnded, record: Record) -> None:
    ledger.ends.add(Stamped(record.time_ms, body))


def _trial_built(ledger: Ledger, body: TrialBuilt, record: Record) -> None:
    ledger.trial(body.trial).built = body


def _trial_closed(ledger: Ledger, body: TrialClosed, record: Record) -> None:
    ledger.trial(body.trial).closed = Stamped(record.time_ms, body)


def _group_exchanged(ledger: Ledger, body: GroupExchanged, record: Record) -> None:
    # The first one counts, as with epochs: what is repeated must not replace what was read.
    ledger.trial(body.trial).exchanges.setdefault((body.epoch, body.group), body)


def _server_served(ledger: Ledger, body: ServerServed, record: Record) -> None:
    ledger.trial(body.trial).served.setdefault((body.epoch, body.server), body)


def _trial_ended(ledger: Ledger, body: TrialEnded, record: Record) -> None:
    ledger.trial(body.trial).ended = Stamped(record.time_ms, body)


def _trial_failed(ledger: Ledger, body: TrialFailed, record: Record) -> None:
    ledger.trial(body.trial).failed = Stamped(record.time_ms, body)


def _node_measured(ledger: Ledger, body: NodeMeasured, record: Record) -> None:
    ledger.measured.setdefault(body.name, body.digest)


def _nothing(ledger: Ledger, body: PrimaryPaused, record: Record) -> None:
    """Keep no state: only the checks of witnesses ask for pauses."""


_FOLDS: dict[type, Callable[[Ledger, Any, Record], None]] = {
    ReplicaReady: Ledger._replica_ready,
    ReplicaLost: Ledger._replica_lost,
    RunReleased: Ledger._run_released,
    RunResumed: _run_resumed,
    RunEnded: _run_ended,
    JobIssued: Ledger._job_issued,
    TrialStarted: Ledger._training_started,
    WorkloadStarted: Ledger._training_started,
    GroupExchanged: _group_exchanged,
    ServerServed: _server_served,
    TrialEnded: _trial_ended,
    TrialFailed: _trial_failed,
    TrialBuilt: _trial_built,
    PrimaryPaused: _nothing,
    TrialClosed: _trial_closed,
    NodeMeasured: _node_measured,
}
"""Change by each kind of record that is not kept as columns."""
