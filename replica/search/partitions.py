"""Partitions: parts of a search space that keep apart replicas that ask at the same moment."""

from __future__ import annotations

from dataclasses import dataclass

MAX_PARTITIONS = 16
"""Most partitions. More of them would leave too few candidates in each."""


@dataclass(frozen=True, slots=True)
class Partition:
    """The candidates whose key is `index` modulo `count`.

    Replicas with different partitions therefore never choose the same candidate from the same
    history. The key of an architecture is its hash, that of hyperparameters their place in the
    sequence of suggestions.
    """

    index: int = 0
    count: int = 1

    @classmethod
    def of(cls, replica: int, replicas: int) -> Partition:
        """The partition of a replica; from `MAX_PARTITIONS` replicas on they share partitions."""
        count = min(replicas, MAX_PARTITIONS)
        return cls(replica % count, count)

    def holds(self, key: int) -> bool:
        """True if the candidate of that key is in this partition."""
        return key % self.count == self.index % self.count


ALL = Partition()
"""One partition that holds everything."""
