"""Bytes and texts between ranks, by way of the store in which a framework's ranks find each other.

PyTorch and JAX both keep such a store in rank 0's process; its clients wait on a socket.
"""

import itertools
from abc import abstractmethod
from collections.abc import Iterator

from replica.trainer.collectives.contract import Collective


class StoreCollective(Collective):
    """The part of a collective that needs no tensor."""

    def __init__(self, rank: int, size: int, local_rank: int) -> None:
        self.rank = rank
        self.size = size
        self.local_rank = local_rank
        self._numbers: Iterator[int] = itertools.count()
        """Numbers of calls: all ranks make the same ones, so that a number names one of them."""

    @abstractmethod
    def put(self, key: str, value: bytes) -> None:
        """Set the value of a new key."""

    @abstractmethod
    def get(self, key: str) -> bytes:
        """Wait for a key, without a limit; give its value."""

    def broadcast(self, data: bytes) -> bytes:
        """Give every rank the bytes that rank 0 passed."""
        key = f"aiperf-{next(self._numbers)}"
        if self.rank > 0:
            return self.get(key)
        self.put(key, data)
        return data

    def gather(self, text: str) -> tuple[str, ...]:
        """Collect the texts of all ranks, by rank."""
        key = f"aiperf-{next(self._numbers)}"
        self.put(f"{key}-{self.rank}", text.encode())
        return tuple(self.get(f"{key}-{rank}").decode() for rank in range(self.size))
