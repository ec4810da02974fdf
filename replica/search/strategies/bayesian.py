"""Network morphism guided by Bayesian optimisation.

Simulated annealing searches the tree of morphs below the best architectures for the one with the
highest upper confidence bound of the surrogate (Jin et al. 2019, algorithm 1). Trials that still
run are pending observations: they count as if they had reached the mean of the accuracies so far
(constant liar, Ginsbourger et al. 2010).
"""

import heapq
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from threadpoolctl import threadpool_limits

from aiperf.errors import ArchitectureError, TrialFailedError
from aiperf.network.architecture import Architecture
from replica.search.distance import Columns, DistanceTable
from replica.search.observations import Observation, Observations
from replica.search.outlines import Known, whole
from replica.search.partitions import ALL, Partition
from replica.search.strategies.contract import Proposal, partition_key
from replica.search.surrogate import BEST, LocalSurrogate, Surrogate
from search_space.limits import Limits
from search_space.morphisms import MAX_MORPHS, Morph
from search_space.sampling import random_morph

EXACT = 500
"""Most observations of an exact process, whose cost grows with their cube."""

PARENTS = BEST
"""Number of the most accurate architectures that the search starts from."""

CHILDREN = 8
"""Random morphs of an architecture whose bounds are computed together."""

START_TEMPERATURE = 1.0
COOLING = 0.75
LEAST_TEMPERATURE = 0.02
"""Schedule of the temperature, in units of the spread of the bounds: 14 steps, about a hundred
candidates per proposal."""

EXTRA_STEPS = 200
"""Further steps at the least temperature if no candidate was found before."""


class BayesianStrategy:
    """The search of the tree of morphs below the best architectures.

    It remembers distances alone. Beyond `exact` observations the process is a local one.
    """

    partitions = True
    learns = True

    def __init__(self, initial: Architecture, limits: Limits, exact: int = EXACT) -> None:
        self._initial = initial
        self._limits = limits
        self._table = DistanceTable()
        self._columns = Columns(self._table)
        self._exact = exact

    def propose(self, observations: Observations, rng: random.Random, partition: Partition = ALL) -> Proposal:
        """Propose the next architecture to train.

        Raises TrialFailedError ("search") if none can be found.
        """
        known = observations.hashes | {self._initial.hash}
        parents = self._parents(observations)
        self._table.trim()
        # The matrices are small: more threads would only take cores from the trainings.
        with threadpool_limits(1):
            search = _Annealing(self._surrogate(observations), self._limits, known, rng, partition)
            return search.run([whole(parent) for parent in parents])

    def _parents(self, observations: Observations) -> list[Known]:
        ranked = sorted(observations.measured, key=lambda observation: -observation.accuracy)
        best: dict[str, Known] = {}
        for observation in ranked:
            best[observation.architecture.hash] = observation.architecture
            if len(best) == PARENTS:
                break
        return list(best.values()) or [self._initial]

    def _surrogate(self, observations: Observations) -> Surrogate:
        measured = observations.measured
        lie = sum(o.accuracy for o in measured) / len(measured) if measured else 0.0
        lies = tuple(Observation(architecture, lie) for architecture in observations.pending)
        counted = (*measured, *lies) or (Observation(self._initial, lie),)
        if len(counted) > self._exact:
            return LocalSurrogate(counted, self._table, self._columns)
        return Surrogate(counted, self._table)


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
    known: frozenset[str]
    rng: random.Random
    partition: Partition
    heap: list[_Branch] = field(default_factory=list)
    best: _Branch | None = None
    made: int = 0

    def run(self, parents: Sequence[Architecture]) -> Proposal:
        """Search until the temperature is down and a candidate is found."""
        self._push((parent, parent.hash, ()) for parent in parents)
        bounds = [-branch.rank[0] for branch in self.heap]
        # Unit of the temperature. In units of accuracy, the late searches of a run, whose bounds
        # lie close together, would accept every child.
        spread = max(max(bounds) - min(bounds), 1e-3)
        temperature, steps = START_TEMPERATURE, 0
        while temperature > LEAST_TEMPERATURE or (self.best is None and steps < EXTRA_STEPS):
            # All branches have reached the most morphs, or none was pushed: begin again at the
            # parents, whose random children are others.
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
            # Children of other partitions are not proposed but expanded: better ones may follow.
            if self.partition.holds(partition_key(child.architecture)) and (
                self.best is None or child.rank < self.best.rank
            ):
                self.best = child
            highest = -self.best.rank[0] if self.best else bound
            # Metropolis rule: a worse child may be expanded, too, to leave a local optimum.
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
            # Breaks ties of bounds by age, the same on every replica.
            self.made += 1
            branches.append(_Branch((-bound, self.made), architecture, parent, morphs))
        return branches

    def _push(self, nodes: Iterable[tuple[Architecture, str, tuple[Morph, ...]]]) -> None:
        for branch in self._branches(list(nodes)):
            heapq.heappush(self.heap, branch)
