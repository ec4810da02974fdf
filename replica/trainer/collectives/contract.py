"""The contract between the ranks of one training.

Every rank calls the same methods in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class Collective(Protocol):
    """The ranks of one training.

    All methods raise TrialFailedError ("rank_lost") when another rank is gone.
    """

    @property
    def rank(self) -> int:
        """Number of this rank, from 0."""

    @property
    def size(self) -> int:
        """Number of ranks."""

    @property
    def local_rank(self) -> int:
        """Number of this rank on its node, from 0, which selects its accelerator."""

    def broadcast(self, data: bytes) -> bytes:
        """Give every rank the bytes that rank 0 passed."""

    def broadcast_variables(self, variables: Sequence[Any]) -> None:
        """Give every rank the values that rank 0 has."""

    def average_variables(self, variables: Sequence[Any]) -> None:
        """Give every rank the mean over ranks."""

    def sum_tensors(self, tensors: Sequence[Any], name: str) -> list[Any]:
        """Sums over ranks as one grouped all-reduce; inside a graph if the framework has graphs.

        `name` is the same on every rank.
        """

    def close(self) -> None:
        """Leave the other ranks."""
