"""The parameter servers as a group's root sees them: gradients go out, new values come back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replica.trainer.servers.mailbox import Mailbox, wait_for
from replica.trainer.servers.protocol import (
    HEADER_VALUES,
    Applied,
    Served,
    Setting,
    Sharding,
    State,
    Tag,
    body_of,
    header_of,
)
from replica.trainer.servers.shard import VALUES, Recipe


@dataclass(frozen=True, slots=True)
class ServerState:
    """The vectors of one server by name, and the number of updates in them."""

    vectors: Mapping[str, NDArray[np.float32]]
    version: int


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of all servers to a gradient, or to a request for values."""

    values: list[NDArray[np.float32]]
    """Values of all parameters; the next answer overwrites them."""
    staleness: int
    """Staleness of the gradient: the largest over the servers."""
    version: int
    """Number of updates that the first server has applied."""
    images: int
    """Images of the updates of all groups so far."""
    stopped: bool
    """True if the training has reached its target."""


class Servers:
    """The parameter servers as one root sees them."""

    def __init__(self, post: Mailbox, numbers: Sequence[int], shapes: Sequence[tuple[int, ...]]) -> None:
        self._post = post
        self._numbers = tuple(numbers)
        self._sharding = Sharding(tuple(shapes), len(self._numbers))
        sizes = [size + HEADER_VALUES for size in self._sharding.sizes()]
        self._sent = [np.zeros(size, np.float32) for size in sizes]
        self._received = [np.zeros(size, np.float32) for size in sizes]
        self.bytes = 0
        """Bytes exchanged so far, in both directions."""

    def set_up(self, recipe: Recipe, values: Sequence[NDArray[Any]], states: Sequence[ServerState] = ()) -> None:
        """Give every server its parameters, or its state in an earlier training; on root 0."""
        for server, number in enumerate(self._numbers):
            state = states[server] if states else self._fresh(server, values)
            setting = Setting(recipe=recipe, names=tuple(state.vectors), version=state.version)
            self._post.send_text(setting.model_dump_json().encode(), number, Tag.SET)
            for vector in state.vectors.values():
                self._post.send(np.ascontiguousarray(vector, np.float32), number, Tag.VECTOR)

    def _fresh(self, server: int, values: Sequence[NDArray[Any]]) -> ServerState:
        vector = np.empty(self._sharding.sizes()[server], np.float32)
        self._sharding.fill(server, values, vector)
        return ServerState({VALUES: vector}, 0)

    def push(self, gradients: Sequence[NDArray[Any]], rate: float, images: int, epoch: int = 0) -> Answer:
        """Send the gradients at the values of the last answer; wait for the new values."""
        for server, (number, message) in enumerate(zip(self._numbers, self._sent, strict=True)):
            self._sharding.fill(server, gradients, body_of(message))
            header = header_of(message)
            # Each server counts its own updates: the version that a gradient was computed on is
            # that of this server's last answer.
            header["version"] = header_of(self._received[server])["version"]
            header["images"], header["rate"], header["epoch"] = images, rate, epoch
            self._post.send(message, number, Tag.GRADIENT)
            self.bytes += message.nbytes
        return self._answers(Tag.GRADIENT)

    def pull(self, averaged: bool = False) -> Answer:
        """Ask for the present values, or for their moving average.

        Gradients are pushed for the present values alone.
        """
        tag = Tag.AVERAGE if averaged else Tag.VALUES
        for number in self._numbers:
            self._post.send_text(b"", number, tag)
        return self._answers(tag)

    def _answers(self, tag: Tag) -> Answer:
        for number, into in zip(self._numbers, self._received, strict=True):
            self._post.take(wait_for(self._post, number, tag), into)
            self.bytes += into.nbytes
        headers = [header_of(message) for message in self._received]
        return Answer(
            values=self._sharding.values([body_of(message) for message in self._received]),
            staleness=max(int(header["staleness"]) for header in headers),
            version=int(headers[0]["version"]),
            images=int(headers[0]["images"]),
            stopped=any(bool(header["stopped"]) for header in headers),
        )

    def states(self) -> list[ServerState]:
        """Fetch the state of every server, for a checkpoint; on root 0."""
        found = []
        for number in self._numbers:
            self._post.send_text(b"", number, Tag.STATE)
            state = State.model_validate_json(self._post.take_text(wait_for(self._post, number, Tag.STATE)))
            vectors = {name: self._post.take_vector(wait_for(self._post, number, Tag.VECTOR)) for name in state.names}
            found.append(ServerState(vectors, state.version))
        return found

    def report(self) -> list[Served]:
        """Fetch the work of each server since the last report; on root 0."""
        for number in self._numbers:
            self._post.send_text(b"", number, Tag.REPORT)
        return [
            Served.model_validate_json(self._post.take_text(wait_for(self._post, number, Tag.REPORT)))
            for number in self._numbers
        ]

    def stop(self) -> None:
        """End the training of every group after its next update; on root 0."""
        for number in self._numbers:
            self._post.send_text(b"", number, Tag.STOP)

    def leave(self, group: int) -> None:
        """Let no server apply anything more of a lost group; on root 0.

        Ranks whose starter was killed may still be there.
        """
        for number in self._numbers:
            self._post.send_text(str(group).encode(), number, Tag.LEAVE)

    def applied(self, group: int) -> Applied:
        """Fetch what the first server has applied of a group's last epoch; on root 0."""
        first = self._numbers[0]
        self._post.send_text(str(group).encode(), first, Tag.APPLIED)
        return Applied.model_validate_json(self._post.take_text(wait_for(self._post, first, Tag.APPLIED)))


def end_processes(post: Mailbox, numbers: Iterable[int]) -> None:
    """Let servers and other roots end; on root 0, after all groups."""
    for number in numbers:
        post.send_text(b"", number, Tag.END)
