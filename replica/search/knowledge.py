"""The history list as the search needs it: trainings, finished and running, and results."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from aiperf.config.space import Hyperparameters, Space, Value
from aiperf.errors import TrialFailedError
from aiperf.history.bodies import TrialEnded, TrialStarted
from aiperf.history.cursor import Cursor
from aiperf.history.files import Batch, HistoryReader
from aiperf.history.ledger import Ledger, TrialLedger
from aiperf.history.lineage import best_quality, epochs_of_training
from aiperf.network.architecture import Architecture
from aiperf.run_directory.architectures import ArchitectureStore
from aiperf.run_directory.paths import RunPaths
from replica.search.initial import is_due
from replica.search.observations import Observation, Observations
from replica.search.tuners.contract import Result, Tried

log = logging.getLogger(__name__)

Training = tuple[str, frozenset[tuple[str, Value]]]
"""The identity of a training: an architecture's hash and the hyperparameters."""


def training_of(architecture: str, hyperparameters: Mapping[str, Value]) -> Training:
    """The identity of a training.

    The kernel size is left out: the architecture's hash contains it.
    """
    return architecture, frozenset(item for item in hyperparameters.items() if item[0] != "kernel_size")


class Source(Protocol):
    """Where records come from: the files of a run, or records that were read before."""

    def read_files(self) -> Iterator[Batch]:
        """Records and damages since the last call, writer by writer."""

    def cursor(self) -> Cursor:
        """How far every writer's records were read."""


@dataclass(frozen=True, slots=True)
class RankedTrial:
    """A completed trial and its best accuracy."""

    trial: int
    started: TrialStarted
    accuracy: float


class Knowledge:
    """All that is recorded of a run's trials.

    It changes only by `read`. Several planners may share one; its methods may be called from
    several threads. Records come from the run's files unless a source gives them.
    """

    def __init__(self, paths: RunPaths, source: Source | None = None) -> None:
        self._source: Source = HistoryReader(paths) if source is None else source
        # The search ignores progress inside epochs, and there are millions of reports of it.
        self._ledger = Ledger(latest_progress_only=True)
        self._store = ArchitectureStore(paths)
        self._last_starts: dict[int, tuple[int, str, int]] = {}
        """By replica: the last trial, and the writer and the number of its start."""
        self._lock = threading.RLock()

    def unchanged(self) -> AbstractContextManager[object]:
        """A block in which no other thread reads: all that is asked in it is of one cursor."""
        return self._lock

    def read(self) -> None:
        """Take in new records; damaged ones are logged and left out. Raises OSError."""
        with self._lock:
            # File by file: if one cannot be read, what was read of the others is not lost.
            for batch in self._source.read_files():
                self._ledger.add(batch.records)
                self._note_starts(batch)
                for damage in batch.damages:
                    log.error("damaged record in the history list: %s", damage)

    def _note_starts(self, batch: Batch) -> None:
        for record in batch.records:
            if isinstance(record.body, TrialStarted):
                start = (record.body.trial, record.writer, record.sequence)
                self._last_starts[record.body.replica] = max(start, self._last_starts.get(record.body.replica, start))

    def is_superseded(self, claim: int | None) -> bool:
        """True if a primary with a higher claim has recorded anything."""
        with self._lock:
            return claim is not None and claim < self._ledger.fences.claim

    def cursor(self) -> Cursor:
        """The records that are known."""
        with self._lock:
            return self._source.cursor()

    def is_current(self, cursor: Cursor, replica: int) -> bool:
        """True if an earlier cursor knows the last trial that a replica has started."""
        with self._lock:
            known, last = self._source.cursor().heads, self._last_starts.get(replica)
        if any(writer not in known or place > known[writer][0] for writer, (place, _) in cursor.heads.items()):
            return False
        return last is None or cursor.heads.get(last[1], (-1, ""))[0] >= last[2]

    def save(self, architecture: Architecture) -> None:
        """Store an architecture in the run directory. Raises OSError."""
        with self._lock:
            self._store.save(architecture)

    def load(self, architecture_hash: str) -> Architecture:
        """The architecture of that hash. Raises ArchitectureError if it is missing or damaged."""
        with self._lock:
            return self._store.load(architecture_hash)

    def started(self, trial: int) -> TrialStarted | None:
        """The start of a trial, if it has started."""
        with self._lock:
            entry = self._ledger.trials.get(trial)
            return entry.started if entry is not None else None

    def mentions(self, trial: int) -> bool:
        """True if there is any record of a trial beyond its job."""
        with self._lock:
            entry = self._ledger.trials.get(trial, TrialLedger(trial))
        return entry != TrialLedger(trial, issued=entry.issued)

    def initial_is_due(self, architecture: str, trial: int) -> bool:
        """True if a trial is to train the initial architecture, of this hash."""
        with self._lock:
            return is_due(self._ledger, architecture, trial)

    def qualities(self, trial: int) -> dict[int, float]:
        """The quality after each epoch of a training, by epoch, with those of trials it resumes."""
        with self._lock:
            epochs = epochs_of_training(self._ledger, trial)
        return {number: epoch.quality or 0.0 for number, epoch in epochs.items()}

    def tuning_base(self, trial: int) -> TrialStarted:
        """The start of the trial whose architecture is tuned.

        Raises TrialFailedError ("search") without one.
        """
        started = self.started(trial)
        if started is None:
            raise TrialFailedError("search", f"trial {trial}, whose hyperparameters are to be tuned, is not recorded")
        return started

    def trainings(self) -> set[Training]:
        """Everything that was trained, or is being trained, in this run."""
        with self._lock:
            return {training_of(started.architecture, started.hyperparameters) for _, started in self._trials()}

    def points_started(self) -> int:
        """Points of all rounds of all replicas, whatever became of them."""
        with self._lock:
            return sum(started.point > 0 for _, started in self._trials())

    def ranked(self) -> list[RankedTrial]:
        """Completed trials with an accuracy, the best first; of equal ones the earliest first."""
        with self._lock:
            done = [
                RankedTrial(entry.trial, entry.started, accuracy)
                for entry in self._ledger.completed_trials()
                if entry.started is not None and (accuracy := best_quality(self._ledger, entry.trial)) is not None
            ]
        return sorted(done, key=lambda trial: (-trial.accuracy, trial.trial))

    def observations(self) -> Observations:
        """The evidence for a search strategy: one result per architecture."""
        completed: dict[str, list[_Outcome]] = {}
        pending: list[Architecture] = []
        failed: list[str] = []
        with self._lock:
            for entry, started in self._trials():
                accuracy = best_quality(self._ledger, entry.trial)
                if entry.ended is not None and accuracy is not None:
                    completed.setdefault(started.architecture, []).append(_Outcome(accuracy, entry.ended.body))
                elif self._ended_badly(entry):
                    failed.append(started.architecture)
                else:
                    pending.append(self._store.load(started.architecture))
            observed = [Observation(self._store.load(name), _result(found)) for name, found in completed.items()]
        return Observations(tuple(observed), tuple(pending), tuple(failed))

    def tried(self, space: Space) -> Tried:
        """The evidence for a tuner: the points of all rounds of all replicas."""
        results: list[Result] = []
        pending: list[Hyperparameters] = []
        names = {parameter.name for parameter in space}
        with self._lock:
            for entry, started in self._trials():
                if started.point == 0:
                    continue
                values = {name: value for name, value in started.hyperparameters.items() if name in names}
                if entry.failed is not None and entry.failed.body.kind == "out_of_memory":
                    results.append(Result(values, 0.0, out_of_memory=True))
                elif entry.ended is not None and (accuracy := best_quality(self._ledger, entry.trial)) is not None:
                    results.append(Result(values, accuracy))
                elif not self._ended_badly(entry):
                    pending.append(values)
        return Tried(tuple(results), tuple(pending))

    def _trials(self) -> Iterator[tuple[TrialLedger, TrialStarted]]:
        """Every trial that has started, by id."""
        for _, entry in sorted(self._ledger.trials.items()):
            if entry.started is not None:
                yield entry, entry.started

    def _ended_badly(self, entry: TrialLedger) -> bool:
        return entry.failed is not None or self._ledger.died_ms(entry) is not None


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The best measured accuracy of a trial, and its end."""

    accuracy: float
    end: TrialEnded

    @property
    def is_final(self) -> bool:
        """True if the measured accuracy is the trial's result."""
        return self.end.predicted_accuracy is None and self.end.reason != "stopped"


def _result(outcomes: list[_Outcome]) -> float:
    """The best measured accuracy of an architecture.

    As long as it was trained in warm-up rounds only, the best predicted one.
    """
    predicted = [o.end.predicted_accuracy for o in outcomes if o.end.predicted_accuracy is not None]
    if predicted and not any(outcome.is_final for outcome in outcomes):
        return max(predicted)
    return max(outcome.accuracy for outcome in outcomes)
