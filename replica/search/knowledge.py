"""The history list as the search needs it: trainings, finished and running, and results.

It comes from the primary's digest while that can be relied on, else from the raw records.
"""

import logging
import threading
from collections.abc import Set
from contextlib import AbstractContextManager

from aiperf.config.space import Hyperparameters, Space
from aiperf.errors import DigestDamagedError, TrialFailedError
from aiperf.network.architecture import Architecture
from aiperf.records.cursor import Cursor
from aiperf.records.history_files import HistoryReader
from aiperf.run_directory.architectures import ArchitectureStore
from aiperf.run_directory.paths import RunPaths
from replica.search.known_trials import KnownTrials, RecordedTrials, Source, of_digest
from replica.search.observations import Observations, Observed, Summary
from replica.search.outcomes import OutcomeTable, RankedTrial, Start, TrainingKey, training_of
from replica.search.outlines import Family
from replica.search.tuners.contract import Result, Tried

# The trials that an agent follows: the digest that its job names, or the raw records.

log = logging.getLogger(__name__)


class FollowedTrials:
    """Known trials that move to a digest, and to the raw records if that cannot be relied on."""

    def __init__(self, paths: RunPaths, known: KnownTrials | None = None) -> None:
        self.now: KnownTrials = known or RecordedTrials(HistoryReader(paths))
        self._paths = paths
        self.digest: str | None = None
        """The digest that is followed; None: the raw records."""
        self._distrusted: set[str] = set()
        self._own: dict[int, int] = {}
        """The last trial that a replica of this process has started, by replica."""

    def follow(self, digest: str | None) -> None:
        """Read a digest from now on, by the name of its primary; None: the raw records."""
        name = None if digest in self._distrusted else digest
        if name != self.digest:
            self.digest, paths = name, self._paths
            self.now = RecordedTrials(HistoryReader(paths)) if name is None else of_digest(paths, name)

    def distrust(self, reason: object) -> None:
        """Read the raw records in place of the digest; no-op without one."""
        if self.digest is not None:
            log.error("the digest %s is not used, but the raw records: %s", self.digest, reason)
            self._distrusted.add(self.digest)
            self.follow(None)

    def read(self) -> None:
        """Take in what is new. Raises OSError."""
        try:
            self.now.read()
        except DigestDamagedError as error:
            # The raw records are the truth, and a digest saves only time: the search continues
            # without it.
            self.distrust(error)
            self.now.read()

    def note_start(self, replica: int, trial: int) -> None:
        """Note that a replica has started a trial, which `read` may show later."""
        self._own[replica] = trial

    def knows_last_start(self, replica: int) -> bool:
        """True if the last start of a trial that was noted of a replica has been read."""
        return replica not in self._own or self.now.started(self._own[replica]) is not None

    def is_current(self, cursor: Cursor, replica: int) -> bool:
        """True if an earlier cursor knows the last trial that a replica has started."""
        return self.knows_last_start(replica) and self.now.is_current(cursor, replica)


MOST_WHOLE = 64
"""Architectures that are kept whole, the last ones in use: each takes about 100 kB."""

__all__ = ["Knowledge", "RankedTrial", "Source", "TrainingKey", "training_of"]


class Knowledge:
    """The knowledge of a run's trials.

    Only `read` changes it. Planners may share one; its methods may be called in any thread. It
    reads raw records, or the source that it is given, until it follows a digest.
    """

    def __init__(self, paths: RunPaths, source: Source | None = None, known: KnownTrials | None = None) -> None:
        self._trials = FollowedTrials(paths, known if source is None else RecordedTrials(source))
        self._observed: Observed | None = None
        self._store = ArchitectureStore(paths, MOST_WHOLE)
        self._family = Family(self.load, self._first_start, self.started)
        # Reentrant: within `unchanged` a thread calls methods that take it again.
        self._lock = threading.RLock()

    def unchanged(self) -> AbstractContextManager[object]:
        """Lock for a block in which no other thread reads: its answers are of one cursor."""
        return self._lock

    @property
    def digest(self) -> str | None:
        """The digest that is followed; None: the raw records."""
        return self._trials.digest

    def follow(self, digest: str | None) -> None:
        """Read a digest from now on, by the name of its primary; None: the raw records."""
        with self._lock:
            self._trials.follow(digest)

    def distrust(self, reason: str) -> None:
        """Read the raw records in place of the digest."""
        with self._lock:
            self._trials.distrust(reason)

    def read(self) -> None:
        """Take in what is new; what is damaged is logged and left out. Raises OSError."""
        with self._lock:
            self._trials.read()

    def note_start(self, replica: int, trial: int) -> None:
        """Note that a replica has started a trial, which `read` may show later."""
        with self._lock:
            self._trials.note_start(replica, trial)

    def knows_last_start(self, replica: int) -> bool:
        """True if the last start of a trial that was noted of a replica has been read."""
        with self._lock:
            return self._trials.knows_last_start(replica)

    def is_superseded(self, claim: int | None) -> bool:
        """True if a primary with a higher claim has recorded anything."""
        with self._lock:
            return claim is not None and self._trials.now.is_superseded(claim)

    def cursor(self) -> Cursor:
        """The place up to which everything is known."""
        with self._lock:
            return self._trials.now.cursor()

    def is_current(self, cursor: Cursor, replica: int) -> bool:
        """True if an earlier cursor knows the last trial that a replica has started."""
        with self._lock:
            return self._trials.is_current(cursor, replica)

    def save(self, architecture: Architecture) -> None:
        """Store an architecture in the run directory. Raises OSError."""
        with self._lock:
            self._store.save(architecture)

    def load(self, architecture_hash: str) -> Architecture:
        """The architecture of that hash. Raises ArchitectureError if it is missing or damaged."""
        with self._lock:
            return self._store.load(architecture_hash)

    def started(self, trial: int) -> Start | None:
        """The start of a trial, if it has started."""
        with self._lock:
            return self._trials.now.started(trial)

    def mentions(self, trial: int) -> bool:
        """True if anything is known of a trial beyond its job."""
        with self._lock:
            return self._trials.now.mentions(trial)

    def initial_is_due(self, architecture: str, trial: int) -> bool:
        """True if a trial is to train the initial architecture, of this hash."""
        with self._lock:
            return self._trials.now.initial_is_due(architecture, trial)

    def qualities(self, trial: int) -> dict[int, float]:
        """The quality after each epoch of a training, by epoch, with those of trials it resumes."""
        with self._lock:
            return self._trials.now.qualities(trial)

    def tuning_base(self, trial: int) -> Start:
        """The start of the trial whose architecture is tuned.

        Raises TrialFailedError ("search") without one.
        """
        started = self.started(trial)
        if started is None:
            raise TrialFailedError("search", f"trial {trial}, whose hyperparameters are to be tuned, is not recorded")
        return started

    def trainings(self) -> Set[TrainingKey]:
        """All trainings of this run, those in progress included, until the next `read`."""
        with self._lock:
            return self.outcomes().trainings

    def points_started(self) -> int:
        """Number of points of all rounds of all replicas, however they ended."""
        with self._lock:
            return self.outcomes().points

    def ranked(self) -> list[RankedTrial]:
        """Completed trials with an accuracy, the best first; of equal ones the earliest first."""
        with self._lock:
            return list(self.outcomes().ranking)

    def outcomes(self) -> OutcomeTable:
        """The outcomes of all trials, to be looked at while they are `unchanged`."""
        return self._trials.now.outcomes()

    def observations(self) -> Observations:
        """The results for a search strategy: one per architecture."""
        with self._lock:
            return self._observing().observations()

    def summary(self) -> Summary:
        """The observations in short."""
        with self._lock:
            return self._observing().summary()

    def _observing(self) -> Observed:
        outcomes = self.outcomes()
        # Another table: the trials have moved to a digest or to the raw records, and begins anew.
        if self._observed is None or self._observed.table is not outcomes:
            self._observed = Observed(outcomes, self._family.outline)
        return self._observed

    def tried(self, space: Space) -> Tried:
        """The results for a tuner: the points of all rounds of all replicas."""
        results: list[Result] = []
        pending: list[Hyperparameters] = []
        names = {parameter.name for parameter in space}
        with self._lock:
            for outcome in self.outcomes().in_order():
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

    def _first_start(self, architecture: str) -> Start | None:
        with self._lock:
            return self.outcomes().first.get(architecture)
