"""The contract of the messages between ranks, and its implementation on MPI.

One thread of a rank calls it. Nothing blocks: a rank that waits polls with pauses, so that it
leaves its core to ranks that compute. mpi4py is loaded only by a hybrid training.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from aiperf.clock import Clock
from replica.trainer.servers.optimisers.contract import Vector

PAUSE_S = 0.0005
"""Seconds between two looks for a message."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """A message that can be taken."""

    source: int
    tag: int


class Mailbox(Protocol):
    """Messages between ranks; those of one rank with one tag keep their order."""

    @property
    def rank(self) -> int:
        """Number of this rank among all, servers included."""

    @property
    def clock(self) -> Clock:
        """The clock that waits and measurements use."""

    def send(self, vector: Vector, to: int, tag: int) -> None:
        """Send a vector, which must not change until the answer to it has come."""

    def send_text(self, text: bytes, to: int, tag: int) -> None:
        """Send bytes."""

    def look(self, source: int | None = None, tag: int | None = None) -> Arrived | None:
        """Give the next message of a source with a tag, or of any; None if none has arrived."""

    def take(self, message: Arrived, into: Vector) -> None:
        """Take a message whose vector has the length of `into`."""

    def take_vector(self, message: Arrived) -> Vector:
        """Take a vector of any length."""

    def take_text(self, message: Arrived) -> bytes:
        """Take bytes."""


class MpiPost:
    """The mailbox of a rank of an MPI job."""

    def __init__(self, clock: Clock) -> None:
        from mpi4py import MPI  # noqa: PLC0415  (initialises MPI, with support for threads)

        self._mpi = MPI
        self.clock = clock
        self.world = MPI.COMM_WORLD
        self.rank: int = self.world.rank
        self.size: int = self.world.size
        self._sent: list[Any] = []
        """Pairs of a request of MPI and its buffer, which MPI reads until the request is done."""

    def part(self, number: int) -> Any:
        """Make a communicator of all ranks that give the same number; every rank calls it."""
        return self.world.Split(number, self.rank)

    def send(self, vector: Vector, to: int, tag: int) -> None:
        """Send a vector without a copy."""
        self._keep(self.world.Isend([vector, self._mpi.FLOAT], to, tag), vector)

    def send_text(self, text: bytes, to: int, tag: int) -> None:
        """Send bytes."""
        self._keep(self.world.Isend([text, self._mpi.BYTE], to, tag), text)

    def _keep(self, request: Any, buffer: object) -> None:
        self._sent = [(pending, kept) for pending, kept in self._sent if not pending.Test()]
        self._sent.append((request, buffer))

    def look(self, source: int | None = None, tag: int | None = None) -> Arrived | None:
        """Give the next message, if one has arrived."""
        status = self._mpi.Status()
        asked = (
            self._mpi.ANY_SOURCE if source is None else source,
            self._mpi.ANY_TAG if tag is None else tag,
        )
        if not self.world.Iprobe(*asked, status):
            return None
        return Arrived(status.Get_source(), status.Get_tag())

    def take(self, message: Arrived, into: Vector) -> None:
        """Take a message into a buffer."""
        # `look` has seen the message: this waits for its transfer at most, not for its sender.
        self.world.Recv([into, self._mpi.FLOAT], message.source, message.tag)

    def take_vector(self, message: Arrived) -> Vector:
        """Take a vector of any length."""
        vector = np.empty(self._length(message, self._mpi.FLOAT), np.float32)
        self.take(message, vector)
        return vector

    def take_text(self, message: Arrived) -> bytes:
        """Take bytes."""
        text = bytearray(self._length(message, self._mpi.BYTE))
        self.world.Recv([text, self._mpi.BYTE], message.source, message.tag)
        return bytes(text)

    def _length(self, message: Arrived, kind: Any) -> int:
        status = self._mpi.Status()
        self.world.Probe(message.source, message.tag, status)
        return int(status.Get_count(kind))

    def close(self) -> None:
        """Wait until all is sent, then leave; every rank calls it.

        Open MPI takes a rank that ends without it for a crash.
        """
        for request, _ in self._sent:
            request.Wait()
        self._mpi.Finalize()


def wait_for(post: Mailbox, source: int | None, *tags: int) -> Arrived:
    """Wait for a message of a source, or of any, with one of these tags, or with any."""
    while True:
        for tag in tags or (None,):
            if (found := post.look(source, tag)) is not None:
                return found
        post.clock.pause(PAUSE_S)
