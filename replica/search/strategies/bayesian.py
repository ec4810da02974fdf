"""What a replica trains next: network morphism guided by Bayesian optimisation.

A simulated-annealing search of the tree of morphs below the best architectures, for the one with the highest upper
confidence bound
of the surrogate (Jin et al. 2019, algorithm 1). Trials still running are pending observations: they count as if
they had reached the
mean of the accuracies so far (constant liar, Ginsbourger et al. 2010).
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from threadpoolctl import threadpool_limits

from aiperf.errors import ArchitectureError, TrialFailedError
from aiperf.network.architecture import Architecture
from replica.search.distance import DistanceTable
from replica.search.surrogate import Observation, Surrogate
from search_space.limits import Limits
from search_space.morphisms import Morph
from search_space.sampling import random_morph

PARENTS = 5
"""The search starts from so many of the most accurate architectures."""

CHILDREN = 8
"""Random morphs of an architecture that are looked at together."""

MAX_MORPHS = 4
"""Most morphs between a proposal and the trained architecture that it grew from: what it inherits stays of use."""

START_TEMPERATURE = 1.0
COOLING = 0.75
LEAST_TEMPERATURE = 0.02
"""14 steps: about a hundred candidates a proposal. Temperatures are in units of the spread of the bounds."""

MAX_LANES = 16
"""Replicas that propose at the same moment draw from different parts of the space, at most so many."""

EXTRA_STEPS = 200
"""Further steps while no candidate was found at all."""


@dataclass(frozen=True, slots=True)
class Lane:
    """The part of the space that a replica proposes from: hashes that are `index` modulo `count`.

    Replicas that see the same history at the same moment therefore never propose the same architecture.
    """

    index: int = 0
    count: int = 1

    @classmethod
    def of(cls, replica: int, replicas: int) -> Lane:
        """The lane of a replica."""
        count = min(replicas, MAX_LANES)
        return cls(replica % count, count)

    def holds(self, architecture: Architecture) -> bool:
        """Whether an architecture is of this lane."""
        return int(architecture.hash, 16) % self.count == self.index


@dataclass(frozen=True, slots=True)
class Proposal:
    """An architecture to train, and how it grew: from which one (None: it is the initial one) by which morphs."""

    architecture: Architecture
    parent: str | None
    morphs: tuple[Morph, ...] = ()


@dataclass(frozen=True)
class History:
    """What is known when a proposal is made. `failed` architectures are not proposed again."""

    completed: tuple[Observation, ...] = ()
    pending: tuple[Architecture, ...] = ()
    failed: tuple[str, ...] = ()

    @property
    def hashes(self) -> set[str]:
        """Every architecture that was tried or is being tried."""
        tried = {observation.architecture.hash for observation in self.completed}
        return tried | {architecture.hash for architecture in self.pending} | set(self.failed)

    @property
    def measured(self) -> tuple[Observation, ...]:
        """Observations whose accuracy is a number; a NaN says nothing."""
        return tuple(observation for observation in self.completed if math.isfinite(observation.accuracy))


class Proposer:
    """Proposes architectures below `initial` within `limits`.

    It remembers distances between architectures and nothing else: a proposal depends on its arguments alone.
    """

    def __init__(self, initial: Architecture, limits: Limits) -> None:
        self._initial = initial
        self._limits = limits
        self._table = DistanceTable()

    def propose(self, history: History, rng: random.Random, lane: Lane = Lane()) -> Proposal:
        """The next architecture to train. Raises TrialFailedError ("search") where none can be found."""
        known = history.hashes | {self._initial.hash}
        # The matrices are small: more threads would cost more than they give, and trainings need the cores.
        with threadpool_limits(1):
            search = _Annealing(self._surrogate(history), self._limits, known, rng, lane)
            return search.run(self._parents(history))

    def propose_randomly(self, history: History, rng: random.Random, lane: Lane = Lane()) -> Proposal:
        """A random morph of a random architecture of the history: what the search is compared with."""
        known = history.hashes | {self._initial.hash}
        pool = [observation.architecture for observation in history.completed] or [self._initial]
        for _ in range(EXTRA_STEPS * CHILDREN):
            parent = rng.choice(pool)
            morph, child = random_morph(parent, rng)
            if child.hash not in known and lane.holds(child) and self._limits.refusal(child) is None:
                return Proposal(child, parent.hash, (morph,))
        raise TrialFailedError("search", "no new architecture within the limits was found")

    def _parents(self, history: History) -> list[Architecture]:
        ranked = sorted(history.measured, key=lambda observation: -observation.accuracy)
        best = list({observation.architecture.hash: observation.architecture for observation in ranked}.values())
        return best[:PARENTS] or [self._initial]

    def _surrogate(self, history: History) -> Surrogate:
        measured = history.measured
        lie = sum(o.accuracy for o in measured) / len(measured) if measured else 0.0
        lies = tuple(Observation(architecture, lie) for architecture in history.pending)
        return Surrogate((*measured, *lies) or (Observation(self._initial, lie),), self._table)


@dataclass(order=True)
class _Branch:
    """A node of the tree of morphs; the heap takes the highest bound first."""

    rank: tuple[float, int]
    architecture: Architecture = field(compare=False)
    parent: str = field(compare=False)
    morphs: tuple[Morph, ...] = field(compare=False)


@dataclass
class _Annealing:
    """Simulated annealing in the tree of morphs."""

    surrogate: Surrogate
    limits: Limits
    known: set[str]
    rng: random.Random
    lane: Lane
    heap: list[_Branch] = field(default_factory=list)
    best: _Branch | None = None
    made: int = 0

    def run(self, parents: Sequence[Architecture]) -> Proposal:
        """Search until the temperature is down and a candidate is found."""
        self._push((parent, parent.hash, ()) for parent in parents)
        bounds = [-branch.rank[0] for branch in self.heap]
        spread = max(max(bounds) - min(bounds), 1e-3)
        temperature, steps = START_TEMPERATURE, 0
        while temperature > LEAST_TEMPERATURE or (self.best is None and steps < EXTRA_STEPS):
            if not self.heap:
                self._push((parent, parent.hash, ()) for parent in parents)
            self._step(heapq.heappop(self.heap), max(temperature, LEAST_TEMPERATURE) * spread)
            temperature, steps = temperature * COOLING, steps + 1
        if self.best is None:
            raise TrialFailedError("search", "no new architecture within the limits was found")
        return Proposal(self.best.architecture, self.best.parent, self.best.morphs)

    def _step(self, branch: _Branch, temperature: float) -> None:
        children = self._children(branch)
        if not children:
            return
        for child in self._branches(children):
            bound = -child.rank[0]
            if self.lane.holds(child.architecture) and (self.best is None or child.rank < self.best.rank):
                self.best = child
            highest = -self.best.rank[0] if self.best else bound
            if self.rng.random() < math.exp(min(0.0, bound - highest) / temperature):
                heapq.heappush(self.heap, child)

    def _children(self, branch: _Branch) -> list[tuple[Architecture, str, tuple[Morph, ...]]]:
        if len(branch.morphs) == MAX_MORPHS:
            return []
        children: dict[str, tuple[Architecture, str, tuple[Morph, ...]]] = {}
        for _ in range(CHILDREN):
            try:
                morph, child = random_morph(branch.architecture, self.rng)
            except ArchitectureError:
                break
            if child.hash not in self.known and self.limits.refusal(child) is None:
                children.setdefault(child.hash, (child, branch.parent, (*branch.morphs, morph)))
        return list(children.values())

    def _branches(self, nodes: list[tuple[Architecture, str, tuple[Morph, ...]]]) -> list[_Branch]:
        bounds = self.surrogate.upper_confidence_bounds([architecture for architecture, _, _ in nodes])
        branches = []
        for bound, (architecture, parent, morphs) in zip(bounds.tolist(), nodes, strict=True):
            self.made += 1
            branches.append(_Branch((-bound, self.made), architecture, parent, morphs))
        return branches

    def _push(self, nodes: Iterable[tuple[Architecture, str, tuple[Morph, ...]]]) -> None:
        for branch in self._branches(list(nodes)):
            heapq.heappush(self.heap, branch)
