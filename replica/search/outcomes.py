"""The outcomes of all trials, kept up to date: only what new records change is computed again."""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator, KeysView, Mapping
from dataclasses import dataclass
from math import inf, isnan
from typing import Protocol

from aiperf.config.space import Value
from aiperf.records import bodies
from aiperf.records.entries import TrialLedger
from aiperf.records.ledger import Ledger
from aiperf.records.lineage import best_quality
from aiperf.records.record import Record


class Start(Protocol):
    """The start of a trial, as a record or an entry of a digest gives it."""

    @property
    def trial(self) -> int:
        """The trial's number."""

    @property
    def replica(self) -> int:
        """The replica that trains it."""

    @property
    def architecture(self) -> str:
        """The hash of the architecture."""

    @property
    def parent(self) -> str | None:
        """The hash of the architecture that it was made from."""

    @property
    def morphs(self) -> tuple[dict[str, str | int], ...]:
        """The morphs that made it."""

    @property
    def point(self) -> int:
        """The point of the round; 0: not tuned."""

    @property
    def base(self) -> int | None:
        """The trial whose architecture is tuned."""

    @property
    def resumes(self) -> int | None:
        """The interrupted trial that it resumes."""

    @property
    def hyperparameters(self) -> dict[str, int | float | str]:
        """The hyperparameters of the training."""


TrainingKey = tuple[str, frozenset[tuple[str, Value]]]
"""The identity of a training: an architecture's hash and the hyperparameters."""


def training_of(architecture: str, hyperparameters: Mapping[str, Value]) -> TrainingKey:
    """The identity of a training.

    The kernel size is left out: the architecture's hash contains it.
    """
    return architecture, frozenset(item for item in hyperparameters.items() if item[0] != "kernel_size")


@dataclass(frozen=True, slots=True)
class RankedTrial:
    """A completed trial and its best accuracy."""

    trial: int
    started: Start
    accuracy: float


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """A trial that has started: its best measured accuracy, if it has one, and how it ended."""

    trial: int
    started: Start
    accuracy: float | None
    end: bodies.TrialEnded | None
    ended_badly: bool
    out_of_memory: bool

    @property
    def completed(self) -> RankedTrial | None:
        """The trial as a completed one with an accuracy; None if it is not."""
        if self.end is None or self.accuracy is None:
            return None
        return RankedTrial(self.trial, self.started, self.accuracy)

    @property
    def is_final(self) -> bool:
        """True if the measured accuracy is the trial's result."""
        return self.end is not None and self.end.predicted_accuracy is None and self.end.reason != "stopped"


def _place(ranked: RankedTrial) -> tuple[float, int]:
    # A NaN is ranked last: compared as it is, it would leave the list without an order.
    return (inf if isnan(ranked.accuracy) else -ranked.accuracy), ranked.trial


class OutcomeTable:
    """The outcomes of trials, with the indices by which they are looked up."""

    def __init__(self) -> None:
        self.all: dict[int, TrialOutcome] = {}
        """Outcomes by trial."""
        self.ranking: list[RankedTrial] = []
        """Completed trials with an accuracy, the best first; of equal ones the earliest first."""
        self.by_architecture: dict[str, dict[int, TrialOutcome]] = {}
        """Completed trials with an accuracy, by the hash of their architecture."""
        self.first: dict[str, Start] = {}
        """The start of the first trial of each architecture."""
        self.points = 0
        """Number of trials that are points of a round, however they ended."""
        self._by_replica: dict[int, dict[int, RankedTrial]] = {}
        """Completed trials with an accuracy, by replica and trial."""
        self._changed: dict[int, TrialOutcome] = {}
        """Outcomes that are new since the last look at changes."""
        self._trainings: Counter[TrainingKey] = Counter()
        self._unfinished: set[int] = set()

    @property
    def trainings(self) -> KeysView[TrainingKey]:
        """All trainings, those in progress included."""
        return self._trainings.keys()

    def in_order(self) -> Iterator[TrialOutcome]:
        """The outcomes of all trials that have started, by id."""
        return (outcome for _, outcome in sorted(self.all.items()))

    def unfinished(self) -> Iterator[TrialOutcome]:
        """The outcomes that are not completed ones with an accuracy, by id."""
        return (self.all[trial] for trial in sorted(self._unfinished))

    def take_changes(self) -> list[TrialOutcome]:
        """The outcomes that are new since the last call; there is one caller."""
        changed, self._changed = self._changed, {}
        return list(changed.values())

    def of_architecture(self, architecture: str) -> list[RankedTrial]:
        """The completed trials of an architecture, in the order of `ranking`."""
        outcomes = self.by_architecture.get(architecture, {}).values()
        return sorted((found for outcome in outcomes if (found := outcome.completed) is not None), key=_place)

    def worse_than(self, best: int, replica: int) -> list[RankedTrial]:
        """The completed trials of a replica that are not among the `best` of all."""
        if len(self.ranking) <= best:
            return []
        first = _place(self.ranking[best])
        return [ranked for ranked in self._by_replica.get(replica, {}).values() if _place(ranked) >= first]

    def put(self, new: TrialOutcome) -> None:
        """Take in the outcome of a trial, in place of an earlier one."""
        old = self.all.get(new.trial)
        # Without a change there is nothing for `Observed` to renew.
        if old == new:
            return
        if old is not None:
            self._remove(old)
        self.all[new.trial] = self._changed[new.trial] = new
        first = self.first.setdefault(new.started.architecture, new.started)
        # Records are read writer by writer, so that the start of an earlier trial may come later.
        if new.trial < first.trial:
            self.first[new.started.architecture] = new.started
        self.points += new.started.point > 0
        self._trainings[training_of(new.started.architecture, new.started.hyperparameters)] += 1
        if (completed := new.completed) is None:
            self._unfinished.add(new.trial)
            return
        self._unfinished.discard(new.trial)
        insort(self.ranking, completed, key=_place)
        self._by_replica.setdefault(new.started.replica, {})[new.trial] = completed
        self.by_architecture.setdefault(new.started.architecture, {})[new.trial] = new

    def _remove(self, old: TrialOutcome) -> None:
        self.points -= old.started.point > 0
        training = training_of(old.started.architecture, old.started.hyperparameters)
        self._trainings[training] -= 1
        if not self._trainings[training]:
            del self._trainings[training]
        if (completed := old.completed) is not None:
            # Found exactly: a place ends with the trial's number, which no other one has.
            del self.ranking[bisect_left(self.ranking, _place(completed), key=_place)]
            del self._by_replica[old.started.replica][old.trial]
            trials = self.by_architecture[old.started.architecture]
            del trials[old.trial]
            if not trials:
                del self.by_architecture[old.started.architecture]


class Outcomes(OutcomeTable):
    """The outcomes of the trials of a ledger.

    `note` follows every change of the ledger; `renew` comes before every look.
    """

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self._ledger = ledger
        self._stale: set[int] = set()
        self._open: set[int] = set()
        """Trials that the loss of a replica or a resumption of the run may end."""
        self._resumed_by: dict[int, set[int]] = {}

    def note(self, records: Iterable[Record]) -> None:
        """Remember which outcomes these records may change."""
        for record in records:
            match record.body:
                case bodies.TrialStarted() as body:
                    if body.resumes is not None:
                        self._resumed_by.setdefault(body.resumes, set()).add(body.trial)
                    self._stale.add(body.trial)
                case bodies.EpochCompleted() | bodies.TrialEnded() | bodies.TrialFailed() as body:
                    self._stale.add(body.trial)
                # Such a record may be the end of trials that it does not name: all open ones are
                # looked at.
                case bodies.ReplicaReady() | bodies.ReplicaLost() | bodies.RunResumed():
                    self._stale |= self._open
                case _:
                    pass

    def renew(self) -> None:
        """Bring all outcomes up to date."""
        waiting, seen = list(self._stale), set(self._stale)
        while waiting:
            # The accuracy of a training counts the epochs of the trials that it resumes.
            later = self._resumed_by.get(waiting.pop(), set()) - seen
            seen |= later
            waiting += later
        self._stale.clear()
        for trial in sorted(seen):
            entry = self._ledger.trials.get(trial)
            if entry is not None and entry.started is not None:
                self.put(self._outcome(entry, entry.started))

    def _outcome(self, entry: TrialLedger, started: bodies.TrialStarted) -> TrialOutcome:
        failed, end = entry.failed, entry.ended.body if entry.ended is not None else None
        if failed is not None or (end is not None and end.reason != "stopped"):
            self._open.discard(entry.trial)
        else:
            self._open.add(entry.trial)
        return TrialOutcome(
            trial=entry.trial,
            started=started,
            accuracy=best_quality(self._ledger, entry.trial),
            end=end,
            ended_badly=failed is not None or self._ledger.died_ms(entry) is not None,
            out_of_memory=failed is not None and failed.body.kind == "out_of_memory",
        )
