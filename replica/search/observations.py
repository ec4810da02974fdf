"""The evidence for a search strategy: architectures, accuracies, and what is in training.

It is kept up to date: only what changed is observed again. Thousands of planners may ask for it in
one process, and a run has tens of thousands of trials.
"""

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Set
from dataclasses import dataclass, field
from functools import cached_property

from replica.search.outcomes import OutcomeTable, TrialOutcome
from replica.search.outlines import Known


@dataclass(frozen=True, slots=True)
class Observation:
    """An architecture and the accuracy it reached, between 0 and 1."""

    architecture: Known
    accuracy: float


@dataclass(frozen=True)
class Observations:
    """The evidence at the time of a proposal. `failed` architectures are not proposed again."""

    completed: tuple[Observation, ...] = ()
    pending: tuple[Known, ...] = ()
    failed: tuple[str, ...] = ()
    tried: Set[str] | None = field(default=None, compare=False, repr=False)
    """The elements of `hashes`, if the maker has them; the set changes with the knowledge."""

    def has(self, architecture_hash: str) -> bool:
        """True if an architecture was tried or is being tried."""
        return architecture_hash in (self.hashes if self.tried is None else self.tried)

    @cached_property
    def hashes(self) -> frozenset[str]:
        """The hashes of all architectures that were tried or are being tried."""
        tried = {observation.architecture.hash for observation in self.completed}
        return frozenset(tried | {architecture.hash for architecture in self.pending} | set(self.failed))

    @cached_property
    def measured(self) -> tuple[Observation, ...]:
        """Observations whose accuracy is a number; a NaN carries no information."""
        return tuple(observation for observation in self.completed if math.isfinite(observation.accuracy))


Place = tuple[int, str]
"""First trial and hash of an architecture: the order decides which landmarks are taken."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The evidence in short: its version, the number of results, and architecture and accuracy of
    the best one."""

    version: int = 0
    completed: int = 0
    best: tuple[str, float] | None = None


class Observed:
    """The observations of a table's outcomes. `outline` gives an architecture by its hash."""

    def __init__(self, table: OutcomeTable, outline: Callable[[str], Known]) -> None:
        self.table = table
        self._outline = outline
        self._version = 0
        self._places: list[Place] = []
        self._completed: list[Observation] = []
        """Observations in the order of `_places`."""
        self._known: dict[str, tuple[Place, float]] = {}
        """The place and the accuracy of each completed architecture."""
        self._ranking: list[tuple[float, Place]] = []
        """Results that are numbers, the best first."""
        self._pending: dict[int, Known] = {}
        self._failed: dict[int, str] = {}
        """Hashes of architectures whose trials ended badly, by trial."""
        self._now: Observations | None = None

    def summary(self) -> Summary:
        """The present observations in short."""
        self._renew()
        best = (self._ranking[0][1][1], -self._ranking[0][0]) if self._ranking else None
        return Summary(self._version, len(self._completed), best)

    def observations(self) -> Observations:
        """The present observations: the same object until something changes."""
        self._renew()
        if self._now is None:
            pending = (self._pending[trial] for trial in sorted(self._pending))
            failed = (self._failed[trial] for trial in sorted(self._failed))
            self._now = Observations(tuple(self._completed), tuple(pending), tuple(failed), self.table.first.keys())
        return self._now

    def _renew(self) -> None:
        changes = self.table.take_changes()
        changed = [self._renew_trial(outcome) for outcome in changes]
        changed += [self._renew_result(name) for name in {outcome.started.architecture for outcome in changes}]
        if any(changed):
            self._version += 1
            # A new object is due now; an unchanged one keeps what it has computed (`hashes`).
            self._now = None

    def _renew_trial(self, outcome: TrialOutcome) -> bool:
        trial, name = outcome.trial, outcome.started.architecture
        before = self._pending.pop(trial, None), self._failed.pop(trial, None)
        if outcome.completed is None:
            if outcome.ended_badly:
                self._failed[trial] = name
            else:
                self._pending[trial] = before[0] or self._outline(name)
        return before != (self._pending.get(trial), self._failed.get(trial))

    def _renew_result(self, name: str) -> bool:
        trials = self.table.by_architecture.get(name)
        new = ((min(trials), name), _result(trials.values())) if trials else None
        old = self._known.pop(name, None)
        if new is not None:
            self._known[name] = new
        if old == new:
            return False
        if old is not None:
            # Two sorted lists are kept in step: the places decide the index in both.
            index = bisect_left(self._places, old[0])
            del self._places[index], self._completed[index]
            if math.isfinite(old[1]):
                del self._ranking[bisect_left(self._ranking, (-old[1], old[0]))]
        if new is not None:
            index = bisect_left(self._places, new[0])
            self._places.insert(index, new[0])
            self._completed.insert(index, Observation(self._outline(name), new[1]))
            if math.isfinite(new[1]):
                insort(self._ranking, (-new[1], new[0]))
        return True


def _result(outcomes: Collection[TrialOutcome]) -> float:
    """The best measured accuracy of an architecture.

    While it was trained in warm-up rounds only, the best predicted one: those train few epochs.
    """
    ends = [outcome.end for outcome in outcomes if outcome.end is not None]
    predicted = [end.predicted_accuracy for end in ends if end.predicted_accuracy is not None]
    if predicted and not any(outcome.is_final for outcome in outcomes):
        return max(predicted)
    return max(outcome.accuracy for outcome in outcomes if outcome.accuracy is not None)
