"""The state of a run as a fold over its records: idempotent, and independent of their order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import singledispatchmethod

from aiperf.operations import Operations
from aiperf.records import (
    Body,
    EpochCompleted,
    JobIssued,
    PhaseBegan,
    ProgressMade,
    Record,
    ReplicaLost,
    ReplicaReady,
    RunEnded,
    RunReleased,
    TrialEnded,
    TrialFailed,
    TrialStarted,
)
from aiperf.score import EpochWork, ProgressWork, TrialWork


@dataclass
class TrialLedger:
    """All that is recorded of one trial. Times are as its writer's clock told them."""

    trial: int
    issued: JobIssued | None = None
    started: TrialStarted | None = None
    writer: str = ""
    started_ms: int | None = None
    epochs: dict[int, tuple[int, EpochCompleted]] = field(default_factory=dict)
    progress: set[ProgressWork] = field(default_factory=set)
    ended: tuple[int, TrialEnded] | None = None
    failed: tuple[int, TrialFailed] | None = None

    @property
    def accuracy(self) -> float | None:
        """Best measured top-1 accuracy of a completed epoch."""
        measured = [
            body.correct / body.images_evaluated for _, body in self.epochs.values() if body.images_evaluated > 0
        ]
        return max(measured, default=None)

    @property
    def search_accuracy(self) -> float | None:
        """What the search gets: the predicted accuracy in warm-up rounds, else the measured one."""
        if self.ended is not None and self.ended[1].predicted_accuracy is not None:
            return self.ended[1].predicted_accuracy
        return self.accuracy


@dataclass
class ReplicaLedger:
    """All that is recorded of one replica."""

    replica: int
    ready: ReplicaReady | None = None
    lost: tuple[int, ReplicaLost] | None = None
    phases: set[tuple[int, PhaseBegan]] = field(default_factory=set)


@dataclass
class Ledger:
    """The state of a run. `conflicts` lists records that contradict each other; they are never dropped in silence."""

    released: tuple[int, RunReleased] | None = None
    run_ended: tuple[int, RunEnded] | None = None
    trials: dict[int, TrialLedger] = field(default_factory=dict)
    replicas: dict[int, ReplicaLedger] = field(default_factory=dict)
    offsets_ms: dict[str, int] = field(default_factory=dict)
    last_ms: int = 0
    conflicts: list[str] = field(default_factory=list)
    _seen: set[tuple[str, int]] = field(default_factory=set, repr=False)

    def add(self, records: Iterable[Record]) -> None:
        """Fold records in; a record that was seen before changes nothing."""
        for record in records:
            key = (record.writer, record.sequence)
            if key not in self._seen:
                self._seen.add(key)
                self.last_ms = max(self.last_ms, record.time_ms)
                self._apply(record.body, record)

    def trial(self, trial: int) -> TrialLedger:
        """The ledger of a trial, made at the first mention."""
        return self.trials.setdefault(trial, TrialLedger(trial))

    def replica(self, replica: int) -> ReplicaLedger:
        """The ledger of a replica, made at the first mention."""
        return self.replicas.setdefault(replica, ReplicaLedger(replica))

    def corrected(self, writer: str, time_ms: int) -> int:
        """A writer's time on the primary's clock."""
        return time_ms - self.offsets_ms.get(writer, 0)

    def completed_trials(self) -> Iterator[TrialLedger]:
        """Trials that trained to their end, by id."""
        return (self.trials[trial] for trial in sorted(self.trials) if self.trials[trial].ended is not None)

    def died_ms(self, trial: TrialLedger) -> int | None:
        """When a trial failed or its replica was lost before it ended, on the primary's clock."""
        moments = []
        if trial.failed is not None:
            moments.append(self.corrected(trial.writer, trial.failed[0]))
        replica = self.replicas.get(trial.started.replica) if trial.started else None
        if trial.ended is None and replica is not None and replica.lost is not None:
            moments.append(replica.lost[0])
        return min(moments, default=None)

    def work(self, trial: TrialLedger, cost: Operations) -> TrialWork:
        """What a trial did, for the score, on the primary's clock."""
        return TrialWork(
            cost=cost,
            epochs=tuple(
                EpochWork(
                    self.corrected(trial.writer, time_ms),
                    body.epoch,
                    body.images_trained,
                    body.images_evaluated,
                    body.correct,
                )
                for time_ms, body in sorted(trial.epochs.values(), key=lambda item: item[1].epoch)
            ),
            progress=tuple(
                ProgressWork(
                    self.corrected(trial.writer, item.time_ms),
                    item.epoch,
                    item.images_trained,
                    item.images_evaluated,
                )
                for item in trial.progress
            ),
            died_ms=self.died_ms(trial),
        )

    @singledispatchmethod
    def _apply(self, body: Body, record: Record) -> None:
        raise NotImplementedError(f"no fold for {type(body).__name__}")

    @_apply.register
    def _(self, body: ReplicaReady, record: Record) -> None:
        self.replica(body.replica).ready = body
        self.offsets_ms[body.writer] = body.clock_offset_ms

    @_apply.register
    def _(self, body: ReplicaLost, record: Record) -> None:
        self.replica(body.replica).lost = (record.time_ms, body)

    @_apply.register
    def _(self, body: RunReleased, record: Record) -> None:
        self.released = (record.time_ms, body)

    @_apply.register
    def _(self, body: RunEnded, record: Record) -> None:
        self.run_ended = (record.time_ms, body)

    @_apply.register
    def _(self, body: JobIssued, record: Record) -> None:
        self.trial(body.trial).issued = body

    @_apply.register
    def _(self, body: TrialStarted, record: Record) -> None:
        trial = self.trial(body.trial)
        if trial.started not in (None, body):
            self.conflicts.append(f"trial {body.trial} was started twice, by {trial.writer} and {record.writer}")
        trial.started, trial.writer, trial.started_ms = body, record.writer, record.time_ms

    @_apply.register
    def _(self, body: PhaseBegan, record: Record) -> None:
        self.replica(body.replica).phases.add((record.time_ms, body))

    @_apply.register
    def _(self, body: ProgressMade, record: Record) -> None:
        work = ProgressWork(record.time_ms, body.epoch, body.images_trained, body.images_evaluated)
        self.trial(body.trial).progress.add(work)

    @_apply.register
    def _(self, body: EpochCompleted, record: Record) -> None:
        epochs = self.trial(body.trial).epochs
        if body.epoch in epochs and epochs[body.epoch][1] != body:
            self.conflicts.append(f"trial {body.trial} completed epoch {body.epoch} twice")
        epochs.setdefault(body.epoch, (record.time_ms, body))

    @_apply.register
    def _(self, body: TrialEnded, record: Record) -> None:
        self.trial(body.trial).ended = (record.time_ms, body)

    @_apply.register
    def _(self, body: TrialFailed, record: Record) -> None:
        self.trial(body.trial).failed = (record.time_ms, body)
