"""The paces of groups and parameter servers, and the parameters that each server has."""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, prod
from statistics import NormalDist

from aiperf.network.architecture import Architecture

BYTES_OF_VALUE = 4

LEAST_FACTOR = 0.1
"""Least duration of a step as a share of its mean: it is never negative."""

_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class GroupPace:
    """The pace of the steps of one group."""

    computing_s: float
    """Mean seconds of a step of one rank, without other ranks and servers."""
    all_reduce_s: float = 0.0
    """Seconds to sum the gradients in the group."""
    broadcast_s: float = 0.0
    """Seconds to broadcast the new values in the group."""
    ranks: int = 1
    spread: float = 0.0
    """Relative standard deviation of a rank's step: a group waits for its slowest rank."""

    def draw(self, drawn: random.Random) -> tuple[float, float]:
        """Seconds of a step's computing, and of its wait for slower ranks in the group.

        The largest of n independent values has the distribution function F^n, so that one uniform
        number and the inverse of F draw it, however many ranks there are.
        """
        if not self.spread:
            return self.computing_s, 0.0
        # random() may be 0, for which the inverse is not defined.
        slowest = _NORMAL.inv_cdf((1.0 - drawn.random()) ** (1 / self.ranks) * (1 - 1e-16))
        factor = max(LEAST_FACTOR, 1 + self.spread * slowest)
        if self.ranks == 1:
            return self.computing_s * factor, 0.0
        return self.computing_s, self.computing_s * max(0.0, factor - 1)


@dataclass(frozen=True, slots=True)
class ServerPace:
    """The pace of one parameter server."""

    service_s: float
    """Seconds for an update: to take it in, to apply it, and to write the answer."""
    transfer_s: float = 0.0
    """Seconds of a message to or from a root."""
    bytes: int = 0
    """Size of one message."""


@dataclass(frozen=True, kw_only=True)
class ExchangePlan:
    """A training of groups that exchange with servers."""

    groups: tuple[GroupPace, ...]
    servers: tuple[ServerPace, ...]
    train_images: int
    """Images of an epoch, which the groups share."""
    step_images: int
    """Images of a step of one group: those of all its ranks."""
    epochs: int
    first_epoch: int = 1
    """First epoch of this training: later if it is resumed."""
    seed: int | str = 0
    lives_s: Mapping[int, tuple[float, ...]] = field(default_factory=dict)
    """Seconds after which groups other than 0 are lost, by group: from the first start, and from
    each time that it comes back. After the last of these it stays lost."""
    returns_s: float = 0.0
    """Seconds from a loss until the group's ranks are ready again."""
    server_lives_s: Mapping[int, tuple[float, ...]] = field(default_factory=dict)
    """Seconds after which servers are killed: from the first start, and from each time that it is
    back. After the last of these it is not killed any more; one death more than `RETURNS` ends the
    training."""
    server_returns_s: float = 0.0
    """Seconds from a server's end until it goes on from its memory."""

    def share(self, group: int) -> int:
        """Images of a group in an epoch: image i is for group i mod G."""
        return len(range(group, self.train_images, len(self.groups)))

    def steps(self, group: int) -> int:
        """Steps of a group in an epoch, of which the last may have fewer images."""
        return ceil(self.share(group) / self.step_images)


def parameter_sizes(architectures: Iterable[Architecture]) -> tuple[int, ...]:
    """Numbers of values of the trained parameters, in the order of the networks."""
    return tuple(
        prod(shape)
        for architecture in architectures
        for node in architecture.nodes
        if not node.shares
        for name, shape in architecture.weight_shapes(node).items()
        if not name.startswith("moving_")
    )


def server_bytes(sizes: Sequence[int], servers: int) -> list[int]:
    """Bytes of each server's message with its header, for parameters placed as in a training."""
    from replica.trainer.servers.protocol import Sharding  # noqa: PLC0415  (loads NumPy)

    return [BYTES_OF_VALUE * length for length in Sharding(tuple((size,) for size in sizes), servers).lengths()]
