"""The trials of a replica's file, each with its records; a replica trains one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Generic

from aiperf.records.bodies import (
    AnyBody,
    EpochCompleted,
    GroupExchanged,
    PhaseBegan,
    ProgressMade,
    ServerServed,
    TrialBuilt,
    TrialEnded,
    TrialFailed,
    TrialStarted,
    WorkloadStarted,
)
from aiperf.records.damage import Damage
from aiperf.records.decoding.epochs import TRIAL, EpochColumns, blocks_of
from analysis.reading.integrity.heard.placed import Placed
from analysis.reading.integrity.view import StartT, TrialIndex, WriterRecords, placed_epochs

_OF_A_TRIAL = (ProgressMade, EpochCompleted, TrialBuilt, GroupExchanged, ServerServed, TrialEnded)


@dataclass(slots=True)
class TrialTrace(Generic[StartT]):
    """A trial's records in the order of its file. The body of `training` is an epoch or progress.

    If epochs are rows of `completed`, none is in `training`, whose progress follows all of them.
    """

    trial: int
    writer: str
    started: Placed[StartT]
    training: list[Placed[ProgressMade | EpochCompleted]] = field(default_factory=list)
    built: list[Placed[TrialBuilt]] = field(default_factory=list)
    exchanges: list[Placed[GroupExchanged | ServerServed]] = field(default_factory=list)
    """Of a hybrid training."""
    ended: Placed[TrialEnded] | None = None
    failed: Placed[TrialFailed] | None = None
    completed: EpochColumns = field(default_factory=EpochColumns)

    @property
    def has_epochs(self) -> bool:
        """True if an epoch is complete."""
        return len(self.completed) > 0 or any(type(place.body) is EpochCompleted for place in self.training)

    @property
    def epochs(self) -> list[Placed[EpochCompleted]]:
        """The completed epochs, as objects."""
        if len(self.completed):
            return placed_epochs(self.started.file, self.completed)
        return [place for place in self.training if type(place.body) is EpochCompleted]  # type: ignore[misc]

    @property
    def index(self) -> TrialIndex[StartT]:
        """The turning points."""
        first = next((place for place in self.training if isinstance(place.body, EpochCompleted)), None)
        return TrialIndex(self.writer, self.started, self.ended, self.failed, first, self.completed)  # type: ignore[arg-type]


@dataclass
class Traces:
    """The traces of one file, and the records that are not in the order of a replica's work."""

    writer: str
    science: bool = False
    """True if the trainings of the run are of scientific workloads."""
    trials: list[TrialTrace[Any]] = field(default_factory=list)
    failed_unstarted: list[Placed[TrialFailed]] = field(default_factory=list)
    """Failures of trials that never started."""
    damages: list[Damage] = field(default_factory=list)
    _open: TrialTrace[Any] | None = None
    _stopped: bool = False

    def add(self, place: Placed[Any]) -> None:
        """Take in the next record."""
        body = place.body
        if type(body) is EpochCompleted and self._open is not None and self._open.trial == body.trial:
            self._open.training.append(place)  # most records
            return
        if isinstance(body, PhaseBegan):
            return
        if isinstance(body, WorkloadStarted if self.science else TrialStarted):
            self._start(place)
        elif isinstance(body, TrialFailed):
            self._fail(place)
        elif isinstance(body, _OF_A_TRIAL):
            self._continue(place)
        elif isinstance(body, TrialStarted | WorkloadStarted):
            expected = f"{'workload' if self.science else 'trial'}_started, in a run of this suite"
            self.damages.append(place.damage("conflict", f"a training begins with {body.type}", expected))
        else:
            self.damages.append(place.damage("conflict", f"a replica wrote {body.type}", "a primary"))

    def _start(self, place: Placed[Any]) -> None:
        body = place.body
        if self._open is not None:
            found = f"trial {body.trial} starts while trial {self._open.trial} is in progress"
            self.damages.append(place.damage("conflict", found, "one trial at a time"))
        elif self._stopped:
            found = f"trial {body.trial} starts after the run has stopped the replica"
            self.damages.append(place.damage("conflict", found, "no further trial"))
        self._open = TrialTrace[Any](body.trial, self.writer, place)
        self.trials.append(self._open)

    def _fail(self, place: Placed[TrialFailed]) -> None:
        trial = place.body.trial
        last = self.trials[-1] if self.trials else None
        if last is not None and last.trial == trial and last.failed is None:
            last.failed = place  # also just after its end: what follows it may fail
        elif self._open is None:
            self.failed_unstarted.append(place)
        else:
            self._stray(place, trial)
        self._open = None

    def _continue(self, place: Placed[Any]) -> None:
        body = place.body
        if self._open is None or self._open.trial != body.trial:
            if isinstance(body, TrialEnded) and body.reason == "stopped" and self._open is None:
                self._stopped = True  # the run ended while the trial was still in search of its plan
            else:
                self._stray(place, body.trial)
            return
        if isinstance(body, TrialEnded):
            self._stopped = body.reason == "stopped"
            self._open.ended, self._open = place, None
        elif isinstance(body, TrialBuilt):
            self._open.built.append(place)
        elif isinstance(body, GroupExchanged | ServerServed):
            self._open.exchanges.append(place)
        else:
            self._open.training.append(place)

    def _stray(self, place: Placed[Any], trial: int) -> None:
        found = f"{place.body.type} of trial {trial}, which is not in progress"
        self.damages.append(place.damage("conflict", found, "a record between a trial's start and its end"))


def traces_of(read: WriterRecords, science: bool = False) -> Traces:
    """The traces of a replica's file, in a run of AutoML or of scientific workloads."""
    traces = Traces(read.writer, science)
    for place in _relevant(read):
        traces.add(place)
    rows = {trial: (begin, end) for trial, begin, end in blocks_of(read.epochs.column(TRIAL))}
    for trace in traces.trials if rows else ():
        trace.completed = read.epochs.between(*rows.get(trace.trial, (0, 0)))
    return traces


def _relevant(read: WriterRecords) -> Iterator[Placed[AnyBody]]:
    file = read.file
    for number, record in zip(read.numbers, read.records, strict=True):
        if not isinstance(record.body, PhaseBegan):
            yield Placed(file, number, record.sequence, record.time_ms, record.body)
