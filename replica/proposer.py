"""What a replica trains next: a network morphism of the best architecture in the history list."""

from __future__ import annotations

import random
from dataclasses import dataclass

from aiperf.architecture import Architecture
from aiperf.errors import TrialFailedError
from aiperf.ledger import Ledger, TrialLedger
from aiperf.models import ArchitectureStore
from search_space.morphisms import deepen, deepen_sites

MAX_DRAWS = 1000
"""Draws of a child before the search gives up finding one that is not in the history."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """An architecture to train and the hash of the one it grew from (None for the initial one)."""

    architecture: Architecture
    parent: str | None


def propose(
    trial: int, initial: Architecture, ledger: Ledger, store: ArchitectureStore, rng: random.Random
) -> Proposal:
    """Grow the next architecture. The same history and random state give the same proposal on any node.

    The first trial of a run is the initial architecture; every other one deepens the most accurate
    architecture at a random place. Architectures already in the history are not proposed again.
    Raises TrialFailedError where no new one is found.
    """
    if trial == 1:
        return Proposal(initial, None)
    parent = _best(initial, ledger, store)
    seen = {entry.started.architecture for entry in ledger.trials.values() if entry.started} | {initial.hash}
    sites = deepen_sites(parent)
    for _ in range(MAX_DRAWS):
        child = deepen(parent, rng.choice(sites))
        if child.hash not in seen:
            return Proposal(child, parent.hash)
        # A parent whose every child is known: look further down the tree.
        if rng.random() < 1 / len(sites):
            parent, sites = child, deepen_sites(child)
    raise TrialFailedError("search", f"no new architecture in {MAX_DRAWS} draws")


def _best(initial: Architecture, ledger: Ledger, store: ArchitectureStore) -> Architecture:
    def rank(entry: TrialLedger) -> tuple[float, int]:
        return (entry.accuracy or 0.0, -entry.trial)

    best = max(ledger.completed_trials(), key=rank, default=None)
    if best is None or best.started is None:
        return initial
    return store.load(best.started.architecture)
