"""The trials of a made-up run: who trains which architecture when, by the rules of a run."""

import heapq
import random
from collections.abc import Iterator
from dataclasses import dataclass

from aiperf.config.settings import RunConfig
from aiperf.network.architecture import Architecture
from aiperf.rules.rounds import plan_round
from aiperf.rules.schedule import Assignment, next_assignment
from aiperf.run_directory.architectures import ArchitectureStore
from search_space.hyperparameters import with_kernel_size
from search_space.limits import growth_limits
from search_space.morphisms import MorphData, morph_data
from search_space.resnet import resnet
from search_space.sampling import random_morph

MAX_EPOCHS = 20
BATCH_SIZE = 448
PRECISION = "mixed_bfloat16"

BETWEEN_S = 4.0
"""Of a trial's time, that is not training."""

KERNEL_SIZES, BATCH_SIZES = (2, 3, 4, 5), (256, 320, 384, 448, 512)
"""The space of hyperparameters of ImageNet."""

PARENTS = 300
"""Trained architectures that children are made from at a time: whole ones are large."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A trial's place in the schedule. Times are seconds after the release."""

    begin_s: float
    replica: int
    assignment: Assignment
    """Its base is the place of a trial in the replica's list."""
    place: int
    epochs: int
    epoch_s: float

    @property
    def end_s(self) -> float:
        """The end of the training, one second before the trial's."""
        return self.begin_s + 2 + self.epochs * self.epoch_s


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial and what it trains."""

    trial: int
    slot: Slot
    base: int | None
    architecture: str
    parent: str | None
    morphs: tuple[MorphData, ...]
    hyperparameters: dict[str, int | float | str]


def schedule(config: RunConfig, replicas: int, trials: int, rng: random.Random) -> list[Slot]:
    """The places of all trials, in the order in which they begin."""
    each = trials / replicas
    slots: list[Slot] = []
    for replica in range(replicas):
        first_s = rng.uniform(1, 30)
        assignments = list(_assignments(config, round((replica + 1) * each) - round(replica * each)))
        epochs = [plan_round(item.round, MAX_EPOCHS).epochs for item in assignments]
        left_s = config.run.duration - first_s - BETWEEN_S * len(epochs) - rng.uniform(1, 30)
        epoch_s, begin_s = left_s / sum(epochs), first_s
        for place, (item, count) in enumerate(zip(assignments, epochs, strict=True)):
            slots.append(Slot(begin_s, replica, item, place, count, epoch_s))
            begin_s += BETWEEN_S + count * epoch_s
    return sorted(slots, key=lambda slot: slot.begin_s)


def _assignments(config: RunConfig, count: int) -> Iterator[Assignment]:
    item = Assignment()
    for place in range(count):
        yield item
        item = next_assignment(item, place, True, config.search)


class Search:
    """Makes the architectures of the trials, in their order, by random morphs."""

    def __init__(self, store: ArchitectureStore, config: RunConfig, architectures: int, rng: random.Random) -> None:
        self._store = store
        self._rng = rng
        self._most = architectures
        self._initial = resnet(50, 224, 1000)
        growth = config.search.max_growth
        self._limits = growth_limits(self._initial, growth, None, BATCH_SIZE, 2)
        self._trained = [self._initial]
        self._training: list[tuple[float, int, Architecture]] = []
        self._own: dict[int, tuple[int, Architecture, str | None, tuple[MorphData, ...]]] = {}
        """By replica, of the round's own trial: its id, and how its architecture was made."""
        self._known: set[str] = set()
        self._ids: dict[tuple[int, int], int] = {}

    def trial(self, number: int, slot: Slot) -> Trial:
        """The next trial."""
        while self._training and self._training[0][0] < slot.begin_s:
            self._note(heapq.heappop(self._training)[2])
        self._ids[slot.replica, slot.place] = number
        return self._tuned(number, slot) if slot.assignment.point else self._new(number, slot)

    def _note(self, architecture: Architecture) -> None:
        if len(self._trained) < PARENTS:
            self._trained.append(architecture)
        else:
            self._trained[self._rng.randrange(PARENTS)] = architecture

    def _new(self, number: int, slot: Slot) -> Trial:
        """A round's own trial; the first one of a run trains the initial architecture."""
        child, parent, morphs = (self._initial, None, ()) if number == 1 else self._child()
        heapq.heappush(self._training, (slot.end_s + 1, number, child))
        self._own[slot.replica] = number, child, parent, morphs
        return self._made(number, slot, child, parent, morphs)

    def _child(self) -> tuple[Architecture, str | None, tuple[MorphData, ...]]:
        while True:
            parent = self._rng.choice(self._trained)
            child, morphs = parent, list[MorphData]()
            for _ in range(self._rng.randint(1, 3)):
                morph, child = random_morph(child, self._rng)
                morphs.append(morph_data(morph))
            if child.hash not in self._known and self._limits.refusal(child) is None:
                return child, parent.hash, tuple(morphs)

    def _tuned(self, number: int, slot: Slot) -> Trial:
        """A point of the search for hyperparameters.

        Once there are enough architectures, all have the usual kernels.
        """
        _, base, parent, morphs = self._own[slot.replica]
        size = self._rng.choice(KERNEL_SIZES) if len(self._known) < self._most else 3
        child = with_kernel_size(base, size)
        values = {"kernel_size": size, "batch_size": self._rng.choice(BATCH_SIZES)}
        return self._made(number, slot, child, parent, morphs if child.hash == base.hash else (), values)

    def _made(
        self,
        number: int,
        slot: Slot,
        child: Architecture,
        parent: str | None,
        morphs: tuple[MorphData, ...],
        values: dict[str, int] | None = None,
    ) -> Trial:
        if child.hash not in self._known:
            self._known.add(child.hash)
            self._store.save(child)
        base = slot.assignment.base
        base = None if base is None else self._ids[slot.replica, base]
        return Trial(number, slot, base, child.hash, parent, morphs, {"batch_size": BATCH_SIZE, **(values or {})})
