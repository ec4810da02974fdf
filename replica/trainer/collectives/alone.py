"""The collective of one rank, which has nothing to exchange."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replica.trainer.collectives.contract import Collective


class AloneCollective(Collective):
    """The collective of the only rank."""

    rank = 0
    size = 1
    local_rank = 0

    def broadcast(self, data: bytes) -> bytes:
        """Give back what was passed."""
        return data

    def broadcast_vector(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Give back what was passed."""
        return values

    def gather(self, text: str) -> tuple[str, ...]:
        """Give the only text."""
        return (text,)

    def broadcast_variables(self, variables: Sequence[Any]) -> None:
        """No-op: there is no other rank."""

    def average_variables(self, variables: Sequence[Any]) -> None:
        """No-op: the mean of one rank is its own value."""

    def sum_tensors(self, tensors: Sequence[Any], name: str) -> list[Any]:
        """Give back the tensors."""
        return list(tensors)

    def close(self) -> None:
        """No-op: there is no other rank to leave."""
