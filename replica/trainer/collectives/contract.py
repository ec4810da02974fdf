"""The contract between the ranks of one training.

Every rank calls the same methods in the same order. Bytes and texts travel over the host: a rank
that waits for them computes nothing, holds nothing on an accelerator, and waits without a limit.
Tensors travel as the framework's library has them travel, within its limits of time.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from aiperf.facts import RankPlace
from aiperf.host import ranges, this_host

GRADIENTS = "gradients"
"""Name of the sums of training steps."""


class Collective(ABC):
    """The ranks of one training.

    All methods raise TrialFailedError ("rank_lost") when another rank is gone.
    """

    rank: int
    """Number of this rank, from 0; in a hybrid training, inside of its group."""
    size: int
    """Number of ranks of the training, or of the group: those that exchange tensors."""
    local_rank: int
    """Number of this rank on its node, from 0, which selects its accelerator."""
    group: int = 0
    """Number of this rank's group, from 0."""
    groups: int = 1
    """Number of groups that train together: 1 unless the training is hybrid."""

    @property
    def is_leader(self) -> bool:
        """True on rank 0 of all groups: it alone talks to the agent, and writes files."""
        return self.rank == 0

    @property
    def number(self) -> int:
        """Number of this rank among those of all groups, from 0."""
        return self.group * self.size + self.rank

    @abstractmethod
    def broadcast(self, data: bytes) -> bytes:
        """Give every rank, of all groups, the bytes that the leader passed."""

    @abstractmethod
    def broadcast_vector(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Give every rank, bit for bit, the values that rank 0 passed; all pass the same number.

        Rank 0 may come to it as late as it likes, as for bytes; the values travel as tensors do.
        """

    @abstractmethod
    def gather(self, text: str) -> tuple[str, ...]:
        """Collect the texts of all ranks, by group and rank, on the leader; else of the group."""

    def gather_places(self) -> tuple[RankPlace, ...]:
        """Collect where each rank runs at this moment, in the order of `gather`."""
        host = this_host()
        cpus = host.affinity()
        own = RankPlace(host.name(), ranges(cpus), ranges(host.memory_domains_of(cpus)))
        texts = self.gather(msgspec.json.encode(own).decode())
        return tuple(msgspec.json.decode(text, type=RankPlace) for text in texts)

    @abstractmethod
    def broadcast_variables(self, variables: Sequence[Any]) -> None:
        """Give every rank the values that rank 0 has."""

    @abstractmethod
    def average_variables(self, variables: Sequence[Any]) -> None:
        """Give every rank the mean over ranks."""

    @abstractmethod
    def sum_tensors(self, tensors: Sequence[Any], name: str) -> list[Any]:
        """Sum over ranks as one grouped all-reduce; inside a graph if the framework has graphs.

        `name` is the same on every rank.
        """

    def average_gradients(self, gradients: Sequence[Any], sums: Any) -> tuple[Any, list[Any]]:
        """Average gradients over all images; give the sums over ranks and the averages.

        `sums` are this rank's loss and images: its mean gradient weighs as much as its images.
        """
        weighted = [gradient * sums[1] for gradient in gradients]
        # Loss and images travel with the gradients: a second all-reduce would cost its latency.
        *summed, totals = self.sum_tensors([*weighted, sums], GRADIENTS)
        return totals, [gradient / totals[1] for gradient in summed]

    def take_exchange_s(self) -> float | None:
        """Take the seconds of the sums named "gradients" since the last call, on this rank.

        They begin when its own values are computed, and end with the sum. None if its library
        cannot tell them from the computing around them, and if there is no other rank.
        """
        return None

    @abstractmethod
    def close(self) -> None:
        """Leave the other ranks."""
