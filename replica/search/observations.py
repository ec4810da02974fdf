"""The evidence for a search strategy: architectures, accuracies, and what is in training."""

from __future__ import annotations

import math
from collections.abc import Set
from dataclasses import dataclass, field
from functools import cached_property

from replica.search.outlines.outline import Known


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
