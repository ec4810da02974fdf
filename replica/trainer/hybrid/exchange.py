"""The exchange of one group with the parameter servers, with its times, bytes and staleness."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiperf.clock import Clock
from aiperf.facts import ExchangeFacts
from replica.trainer.collectives.contract import Collective
from replica.trainer.schedules import Rate
from replica.trainer.servers.client import Answer, Servers
from replica.trainer.servers.protocol import Sharding
from replica.trainer.servers.tally import Tally


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of an exchange: the group, its parameters, its learning rate."""

    group: int
    sharding: Sharding
    """The parameters, in the order of their gradients."""
    rate: Rate
    epoch_images: int
    """Images that all groups together train in an epoch."""
    warm_up: int = 0
    """Number of first updates over which the rate rises; 0: it does not."""


class Exchange:
    """The exchange of a group: its root asks the servers, and every rank gets their answer."""

    def __init__(self, group: Collective, servers: Servers | None, terms: Terms, clock: Clock) -> None:
        self._group = group
        self._servers = servers
        """The servers as the root sees them; None on other ranks."""
        self._terms = terms
        self._clock = clock
        self.version = 0
        """Number of updates, of all groups, that this group's values contain."""
        self.epochs = 0
        """Number of epochs of the earlier training that this one resumes."""
        self.images = 0
        """Images of all groups' updates in this training, as of the last answer."""
        self.stopped = False
        """True if the training has reached its target: there is no further update."""
        self.begin_epoch(0)

    def begin_epoch(self, epoch: int) -> None:
        """Begin to count updates, images, times and bytes of an epoch."""
        self._tally = Tally(epoch)
        self._bytes_before = self._servers.bytes if self._servers is not None else 0
        self._lap_s = self._clock.monotonic_s()

    def lap(self, name: str) -> None:
        """Count the time since the last lap as "computing_s", "group_s" or "waiting_s".

        The three add up to the whole time: it is one clock, read between the parts.
        """
        now_s = self._clock.monotonic_s()
        setattr(self._tally, name, getattr(self._tally, name) + now_s - self._lap_s)
        self._lap_s = now_s

    def rate(self) -> float:
        """The learning rate of the next update, by the images of all groups; less in the warm-up.

        A group's own images would let the rate of a slow group lag behind the training.
        """
        terms = self._terms
        scheduled = terms.rate(self.epochs + self.images / terms.epoch_images)
        return scheduled * min(1.0, (self.version + 1) / terms.warm_up) if terms.warm_up else scheduled

    def push(self, gradients: Sequence[NDArray[Any]], images: int, finite: bool = True) -> Answer:
        """Exchange the group's mean gradients for new values; every rank of the group calls it.

        Only the root needs the gradients. `images` are those of the whole group. Without `finite`
        gradients the rate is 0.
        """
        rate = self.rate() if finite else 0.0
        own = self._servers.push(gradients, rate, images, self._tally.epoch) if self._servers is not None else None
        self.lap("waiting_s")
        answer = self._shared(own)
        self._tally.add(images, answer.staleness)
        self.lap("group_s")
        return answer

    def pull(self, averaged: bool = False) -> Answer:
        """Ask for the values, or their moving average; every rank of the group calls it."""
        return self._shared(self._servers.pull(averaged) if self._servers is not None else None)

    def _shared(self, own: Answer | None) -> Answer:
        """Give every rank of the group the root's answer."""
        answer = own
        if self._group.size > 1 or answer is None:
            *ends, whole = itertools.accumulate(self._terms.sharding.lengths())
            sent = np.empty(whole, np.float32) if own is None else np.concatenate(own.messages)
            answer = Answer.of(np.split(self._group.broadcast_vector(sent), ends), self._terms.sharding)
        self.version, self.images, self.stopped = answer.version, answer.images, answer.stopped
        return answer

    def facts(self) -> ExchangeFacts:
        """The facts of the exchange in the epoch that has begun last; on the root alone."""
        assert self._servers is not None
        return self._tally.facts(self._terms.group, self._servers.bytes - self._bytes_before)
