"""One rank: nothing to exchange."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class AloneCollective:
    """The only rank."""

    rank = 0
    size = 1
    local_rank = 0

    def broadcast(self, data: bytes) -> bytes:
        """What was passed."""
        return data

    def broadcast_variables(self, variables: Sequence[Any]) -> None:
        """Nothing: every rank has them."""

    def average_variables(self, variables: Sequence[Any]) -> None:
        """Nothing: the mean of one."""

    def sum_tensors(self, tensors: Sequence[Any], name: str) -> list[Any]:
        """The tensors."""
        return list(tensors)

    def close(self) -> None:
        """Nothing."""
