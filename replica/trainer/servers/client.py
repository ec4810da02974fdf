"""The parameter servers as a group's root sees them: gradients go out, new values come back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.json import decode, encode
from numpy.typing import NDArray

from aiperf.facts import ExchangeFacts, ServerFacts
from replica.trainer.servers import protocol
from replica.trainer.servers.optimisers import Vector
from replica.trainer.servers.shard import Recipe

if TYPE_CHECKING:  # pyzmq may not be installed
    from replica.trainer.servers.zeromq import ZmqMailbox


HOLD_MS = 5
"""Pause before servers are asked again whether all have the same updates."""


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
    messages: Sequence[Vector]
    """The messages of the servers that all this was read from."""

    @classmethod
    def of(cls, messages: Sequence[Vector], sharding: protocol.Sharding) -> Answer:
        """Read the messages with values of all servers, as a root gets them and its group."""
        headers = [protocol.header_of(message) for message in messages]
        return cls(
            values=sharding.values([protocol.body_of(message) for message in messages]),
            staleness=max(int(header["staleness"]) for header in headers),
            version=int(headers[0]["version"]),
            images=int(headers[0]["images"]),
            stopped=any(bool(header["stopped"]) for header in headers),
            messages=messages,
        )


class Servers:
    """The parameter servers as one root sees them.

    A question is asked again if its server is lost before it has answered: it may be back within
    the grace of the training. All methods raise TrialFailedError ("rank_lost") if it is not.
    """

    def __init__(self, post: ZmqMailbox, numbers: Sequence[int], shapes: Sequence[tuple[int, ...]]) -> None:
        self._post = post
        self._numbers = tuple(numbers)
        self._sharding = protocol.Sharding(tuple(shapes), len(self._numbers))
        lengths = self._sharding.lengths()
        self._sent = [np.zeros(length, np.float32) for length in lengths]
        self._received = [np.zeros(length, np.float32) for length in lengths]
        self._worked = [protocol.Work(updates=0, busy_s=0.0, starts=1) for _ in self._numbers]
        self._since_s = post.clock.monotonic_s()
        self.asked = 0
        """Number of the last question; larger for a group that has come back."""
        self.bytes = 0
        """Bytes exchanged so far, in both directions."""

    def set_up(self, recipe: Recipe, values: Sequence[NDArray[Any]], states: Sequence[ServerState] = ()) -> None:
        """Give every server its parameters, or its state in an earlier training; on root 0."""
        messages = []
        for server, size in enumerate(self._sharding.sizes()):
            state = states[server] if states else ServerState(recipe.begun_with(self._fresh(server, values)), 0)
            messages.append(protocol.Setting(recipe=recipe, size=size, version=state.version).message(state.vectors))
        self._ask(protocol.Tag.SET, messages)
        self._since_s = self._post.clock.monotonic_s()

    def _fresh(self, server: int, values: Sequence[NDArray[Any]]) -> NDArray[np.float32]:
        vector = np.empty(self._sharding.sizes()[server], np.float32)
        self._sharding.fill(server, values, vector)
        return vector

    def push(self, gradients: Sequence[NDArray[Any]], rate: float, images: int, epoch: int = 0) -> Answer:
        """Send the gradients at the values of the last answer; wait for the new values."""
        for server, message in enumerate(self._sent):
            self._sharding.fill(server, gradients, protocol.body_of(message))
            header = protocol.header_of(message)
            # Each server counts its own updates: the version that a gradient was computed on is
            # that of this server's last answer.
            header["version"] = protocol.header_of(self._received[server])["version"]
            header["images"], header["rate"], header["epoch"] = images, rate, epoch
            self.bytes += message.nbytes
        return self._answer(protocol.Tag.GRADIENT, self._sent)

    def pull(self, averaged: bool = False) -> Answer:
        """Ask for the present values, or for their moving average.

        Gradients are pushed for the present values alone.
        """
        return self._answer(protocol.Tag.AVERAGE if averaged else protocol.Tag.VALUES)

    def _answer(self, tag: protocol.Tag, messages: Sequence[NDArray[np.float32]] = ()) -> Answer:
        def take(server: int, message: protocol.Arrived) -> None:
            self._post.take(message, self._received[server])
            self.bytes += self._received[server].nbytes

        self._ask(tag, messages, take)
        return Answer.of(self._received, self._sharding)

    def _ask(
        self,
        tag: protocol.Tag,
        messages: Sequence[bytes | NDArray[np.float32]] = (),
        take: Callable[[int, protocol.Arrived], Any] | None = None,
    ) -> list[Any]:
        """Send each server its message; give what `take` makes of the answers.

        A single message is for all, and without one it is empty. Answers are bytes by default.
        """
        numbers = self._numbers
        sent = list(messages) if len(messages) > 1 else [*messages, b""][:1] * len(numbers)
        self.asked += 1
        # Counted before anything is sent: a loss in between then shows, and the message is sent
        # again.
        losses = [self._post.losses(number) for number in numbers]
        for number, message in zip(numbers, sent, strict=True):
            self._post.send(message, number, tag, self.asked)
        found, waiting = dict[int, Any](), dict(enumerate(numbers))
        while waiting:
            for server, number in list(waiting.items()):
                while server in waiting and (answer := self._post.look(number, tag)) is not None:
                    if answer.number == self.asked:
                        found[server] = take(server, answer) if take is not None else self._post.take_text(answer)
                        del waiting[server]
                    else:
                        self._post.take_text(answer)  # the second one to a question that was asked twice
                # Every server that owes an answer, not the first alone: one may hold its answer
                # back until another, which was killed meanwhile, has the same gradient.
                if server in waiting and self._post.losses(number) != losses[server]:
                    losses[server] = self._post.losses(number)
                    # A copy: the first message may still be under way when the answer comes.
                    self._post.send(bytes(sent[server]), number, tag, self.asked)
            if waiting:
                self._post.wait(*waiting.values())
        return [found[server] for server in range(len(numbers))]

    def states(self, meanwhile: Callable[[], None] = lambda: None) -> list[ServerState]:
        """Fetch the state of every server, for a checkpoint: all with the same updates; on root 0.

        Without answers no group sends another gradient, and those that are under way arrive. Those
        of a group that is lost may not: `meanwhile` lets it leave.
        """
        several = len(self._numbers) > 1
        while True:
            held = self._ask(protocol.Tag.HOLD) if several else [b""]
            if len(set(held)) == 1:
                found = [protocol.setting_of(text) for text in self._ask(protocol.Tag.STATE)]
                # A server that is killed holds nothing back any more: with two of them, groups may
                # have gone on meanwhile.
                if not several or self._ask(protocol.Tag.HOLD) == held:
                    break
            meanwhile()
            self._post.wait(limit_ms=HOLD_MS)
        if several:
            self._ask(protocol.Tag.RELEASE)
        return [ServerState(vectors, setting.version) for setting, vectors in found]

    def report(self, epoch: int) -> list[ServerFacts]:
        """Fetch the work of each server in an epoch: since the last report; on root 0."""
        found = [decode(text, type=protocol.Work) for text in self._ask(protocol.Tag.REPORT)]
        now_s = self._post.clock.monotonic_s()
        passed_s = max(now_s - self._since_s, 1e-9)
        served = [
            ServerFacts(
                epoch=epoch,
                server=number,
                updates=work.updates - before.updates,
                # A process that was started since then has counted its seconds from 0, its updates
                # from the log.
                busy_share=min(1.0, (work.busy_s - (before.starts == work.starts) * before.busy_s) / passed_s),
                restarts=work.starts - before.starts or None,
            )
            for number, (before, work) in enumerate(zip(self._worked, found, strict=True))
        ]
        self._worked, self._since_s = found, now_s
        return served

    def stop(self) -> None:
        """End the training of every group after its next update; on root 0."""
        self._ask(protocol.Tag.STOP)

    def leave(self, group: int, least: int, after: int) -> list[ExchangeFacts]:
        """Let no server apply anything more of a lost group with a number below this; on root 0.

        Ranks whose starter was killed may still be there. Gives what the first server has applied
        of the group after an epoch.
        """
        left = protocol.Left(group=group, least=least, after=after)
        return decode(self._ask(protocol.Tag.LEAVE, [encode(left)])[0], type=list[ExchangeFacts])


def end_processes(post: ZmqMailbox, numbers: Iterable[int]) -> None:
    """Let servers and other roots end; on root 0, after all groups."""
    for number in numbers:
        post.send(b"", number, protocol.Tag.END)
