"""Messages between imagined ranks of one process, and parameter servers that serve them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from aiperf.clock import Clock, SystemClock
from replica.trainer.servers.client import Servers, end_ranks
from replica.trainer.servers.mailbox import Arrived
from replica.trainer.servers.optimisers.contract import Vector
from replica.trainer.servers.server import Server

Sent = tuple[int, int, Vector | bytes]
"""Source, tag and what was sent."""


class Office:
    """Keeps what was sent until it is taken, in its order."""

    def __init__(self) -> None:
        self.boxes: dict[int, list[Sent]] = {}
        self.lock = threading.Lock()

    def post(self, rank: int) -> LocalPost:
        """The post of one rank."""
        return LocalPost(rank, self)


class LocalPost:
    """The post of one rank (`Mailbox`)."""

    def __init__(self, rank: int, office: Office) -> None:
        self.rank = rank
        self.clock: Clock = SystemClock()
        self._office = office

    def send(self, vector: Vector, to: int, tag: int) -> None:
        self._put(vector.copy(), to, tag)

    def send_text(self, text: bytes, to: int, tag: int) -> None:
        self._put(text, to, tag)

    def _put(self, sent: Vector | bytes, to: int, tag: int) -> None:
        with self._office.lock:
            self._office.boxes.setdefault(to, []).append((self.rank, tag, sent))

    def look(self, source: int | None = None, tag: int | None = None) -> Arrived | None:
        with self._office.lock:
            for found, kind, _ in self._office.boxes.get(self.rank, []):
                if source in (None, found) and tag in (None, kind):
                    return Arrived(found, kind)
        return None

    def _take(self, message: Arrived) -> Vector | bytes:
        with self._office.lock:
            box = self._office.boxes[self.rank]
            place = next(n for n, sent in enumerate(box) if sent[:2] == (message.source, message.tag))
            return box.pop(place)[2]

    def take(self, message: Arrived, into: Vector) -> None:
        into[:] = self.take_vector(message)

    def take_vector(self, message: Arrived) -> Vector:
        vector = self._take(message)
        assert isinstance(vector, np.ndarray)
        return vector

    def take_text(self, message: Arrived) -> bytes:
        text = self._take(message)
        assert isinstance(text, bytes)
        return text


@contextmanager
def serving(groups: int, servers: int, shapes: Sequence[tuple[int, ...]]) -> Iterator[list[Servers]]:
    """Servers in threads; the clients of as many groups with one rank each."""
    office = Office()
    ranks = range(groups, groups + servers)
    threads = [threading.Thread(target=Server(office.post(rank)).run, daemon=True) for rank in ranks]
    for thread in threads:
        thread.start()
    try:
        yield [Servers(office.post(group), ranks, shapes) for group in range(groups)]
    finally:
        end_ranks(office.post(0), ranks)
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
