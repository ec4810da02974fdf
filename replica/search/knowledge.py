"""The history list as the search needs it: trainings, finished and running, and results."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterator, Set
from contextlib import AbstractContextManager
from typing import Protocol

from aiperf.config.space import Hyperparameters, Space
from aiperf.errors import TrialFailedError
from aiperf.history.bodies import TrialStarted
from aiperf.history.cursor import Cursor
from aiperf.history.files import Batch, HistoryReader
from aiperf.history.ledger import Ledger, TrialLedger
from aiperf.history.lineage import epochs_of_training
from aiperf.network.architecture import Architecture
from aiperf.run_directory.architectures import ArchitectureStore
from aiperf.run_directory.paths import RunPaths
from replica.search.initial import is_due
from replica.search.observations import Observation, Observations
from replica.search.outcomes import Outcome, Outcomes, RankedTrial, Training, training_of
from replica.search.outlines.family import Family
from replica.search.tuners.contract import Result, Tried

log = logging.getLogger(__name__)

MOST_WHOLE = 64
"""Architectures that are kept whole, the last ones in use: each takes about 100 kB."""

__all__ = ["Knowledge", "RankedTrial", "Source", "Training", "training_of"]


class Source(Protocol):
    """Where records come from: the files of a run, or records that were read before."""

    def read_files(self) -> Iterator[Batch]:
        """Records and damages since the last call, writer by writer."""

    def cursor(self) -> Cursor:
        """How far every writer's records were read."""


class _LastStarts(dict[int, tuple[int, str, int]]):
    """By replica: the last trial, and the writer and the number of its start."""

    def note(self, batch: Batch) -> None:
        """Take in new records."""
        for record in batch.records:
            if isinstance(record.body, TrialStarted):
                start = (record.body.trial, record.writer, record.sequence)
                self[record.body.replica] = max(start, self.get(record.body.replica, start))


class Knowledge:
    """All that is recorded of a run's trials.

    It changes only by `read`. Several planners may share one; its methods may be called from
    several threads. Records come from the run's files unless a source gives them.
    """

    def __init__(self, paths: RunPaths, source: Source | None = None) -> None:
        self._source: Source = HistoryReader(paths) if source is None else source
        # The search ignores progress inside epochs, and there are millions of reports of it.
        self._ledger = Ledger(latest_progress_only=True)
        self._outcomes = Outcomes(self._ledger)
        self._observed: tuple[int, Observations] | None = None
        """The version of the outcomes, and what is observed at it."""
        self._store = ArchitectureStore(paths, MOST_WHOLE)
        self._family = Family(self.load, self.started)
        self._last_starts = _LastStarts()
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
                self._outcomes.note(batch.records)
                self._last_starts.note(batch)
                self._family.note(r.body for r in batch.records if isinstance(r.body, TrialStarted))
                for damage in batch.damages:
                    log.error("damaged record in the history list: %s", damage)

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

    def trainings(self) -> Set[Training]:
        """Everything that was trained, or is being trained, in this run, until the next `read`."""
        with self._lock:
            return self._now().trainings

    def points_started(self) -> int:
        """Points of all rounds of all replicas, whatever became of them."""
        with self._lock:
            return self._now().points

    def ranked(self) -> list[RankedTrial]:
        """Completed trials with an accuracy, the best first; of equal ones the earliest first."""
        with self._lock:
            return list(self._now().ranking)

    def observations(self) -> Observations:
        """The evidence for a search strategy: one result per architecture."""
        with self._lock:
            outcomes = self._now()
            if self._observed is None or self._observed[0] != outcomes.version:
                self._observed = outcomes.version, self._observe(outcomes)
            return self._observed[1]

    def tried(self, space: Space) -> Tried:
        """The evidence for a tuner: the points of all rounds of all replicas."""
        results: list[Result] = []
        pending: list[Hyperparameters] = []
        names = {parameter.name for parameter in space}
        with self._lock:
            for outcome in self._now().in_order():
                if outcome.started.point == 0:
                    continue
                values = {name: value for name, value in outcome.started.hyperparameters.items() if name in names}
                if outcome.out_of_memory:
                    results.append(Result(values, 0.0, out_of_memory=True))
                elif outcome.end is not None and outcome.accuracy is not None:
                    results.append(Result(values, outcome.accuracy))
                elif not outcome.ended_badly:
                    pending.append(values)
        return Tried(tuple(results), tuple(pending))

    def _now(self) -> Outcomes:
        self._outcomes.renew()
        return self._outcomes

    def _observe(self, outcomes: Outcomes) -> Observations:
        # By the first trial of each architecture: the order decides which landmarks are taken.
        completed = sorted(outcomes.by_architecture.items(), key=lambda item: min(item[1]))
        pending, failed = [], []
        for outcome in outcomes.unfinished():
            if outcome.ended_badly:
                failed.append(outcome.started.architecture)
            else:
                pending.append(self._family.outline(outcome.started.architecture))
        observed = [Observation(self._family.outline(name), _result(trials.values())) for name, trials in completed]
        return Observations(tuple(observed), tuple(pending), tuple(failed))


def _result(outcomes: Collection[Outcome]) -> float:
    """The best measured accuracy of an architecture.

    As long as it was trained in warm-up rounds only, the best predicted one.
    """
    ends = [outcome.end for outcome in outcomes if outcome.end is not None]
    predicted = [end.predicted_accuracy for end in ends if end.predicted_accuracy is not None]
    if predicted and not any(outcome.is_final for outcome in outcomes):
        return max(predicted)
    return max(outcome.accuracy for outcome in outcomes if outcome.accuracy is not None)
