"""Bytes and texts between ranks, by way of the store in which a framework's ranks find each other.

PyTorch and JAX both keep such a store in rank 0's process; its clients wait on a socket.
"""

import itertools
from abc import abstractmethod
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

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

    @abstractmethod
    def remove(self, key: str) -> None:
        """Remove a key with its value."""

    @abstractmethod
    def broadcast_bits(self, bits: NDArray[np.int32]) -> NDArray[np.int32]:
        """Give every rank the numbers that rank 0 passed, as a tensor travels."""

    def broadcast(self, data: bytes) -> bytes:
        """Give every rank the bytes that rank 0 passed."""
        key = f"aiperf-{next(self._numbers)}"
        if self.rank > 0:
            received = self.get(f"{key}-{self.rank}")
            self.remove(f"{key}-{self.rank}")
            return received
        # A key for each reader, who removes it: nobody else knows when it has been read, and the
        # steps of a training in groups would fill the store.
        for rank in range(1, self.size):
            self.put(f"{key}-{rank}", data)
        return data

    def broadcast_vector(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Give every rank, bit for bit, the values that rank 0 passed."""
        # The wait is the store's, which has no limit; the values would be too large for it
        # (PyTorch's takes 8 MiB).
        self.broadcast(b"")
        # As whole numbers, of which a sum with zeros, as JAX broadcasts, is exact for any bits.
        return self.broadcast_bits(values.view(np.int32)).view(np.float32)

    def gather(self, text: str) -> tuple[str, ...]:
        """Collect the texts of all ranks, by rank."""
        key = f"aiperf-{next(self._numbers)}"
        self.put(f"{key}-{self.rank}", text.encode())
        return tuple(self.get(f"{key}-{rank}").decode() for rank in range(self.size))
