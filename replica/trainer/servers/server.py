"""A parameter server: applies gradients in the order in which they arrive, and never waits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from aiperf.clock import Clock
from replica.trainer.servers.mailbox import Arrived, Mailbox, wait_for
from replica.trainer.servers.optimisers.contract import Vector
from replica.trainer.servers.protocol import HEADER_VALUES, Applied, Served, Setting, State, Tag, body_of, header_of
from replica.trainer.servers.shard import VALUES, Shard
from replica.trainer.servers.zeromq import ZmqMailbox
from replica.trainer.settings import GroupPlaces

LEAD = 0
"""The process that sets the servers up and ends them: the root of group 0."""


class Server:
    """The service of one shard, until rank 0 ends it."""

    def __init__(self, post: Mailbox) -> None:
        self._post = post
        self._clock = post.clock
        self._answers: dict[int, Vector] = {}
        self._stopped = False
        self._busy_s = 0.0
        self._updates = 0
        self._applied: dict[int, Applied] = {}
        """Updates of each group in its last epoch."""
        self._left: set[int] = set()
        """Groups that are lost."""
        self._since_s = self._clock.monotonic_s()
        self._handlers: dict[int, Callable[[Arrived], None]] = {
            Tag.GRADIENT: self._gradient,
            Tag.VALUES: self._values,
            Tag.AVERAGE: self._average,
            Tag.STATE: self._state,
            Tag.REPORT: self._report,
            Tag.STOP: self._stop,
            Tag.APPLIED: self._tell_applied,
            Tag.LEAVE: self._leave,
        }

    def run(self) -> None:
        """Wait for the setting, then serve until the end.

        Other roots may ask before that of group 0 has set this server up: they are answered
        afterwards.
        """
        first = wait_for(self._post, LEAD, Tag.SET, Tag.END)
        if first.tag == Tag.END:
            self._post.take_text(first)
            return
        self._set(first)
        self._since_s = self._clock.monotonic_s()
        while True:
            message = self._post.look()
            if message is None:
                self._post.wait()
                continue
            if message.tag == Tag.END:
                self._post.take_text(message)
                return
            began_s = self._clock.monotonic_s()
            self._handlers[message.tag](message)
            self._busy_s += self._clock.monotonic_s() - began_s

    def _set(self, message: Arrived) -> None:
        setting = Setting.model_validate_json(self._post.take_text(message))
        state = {name: self._post.take_vector(wait_for(self._post, LEAD, Tag.VECTOR)) for name in setting.names}
        self._shard = Shard(setting.recipe, state[VALUES])
        self._gradients = np.empty(len(state[VALUES]) + HEADER_VALUES, np.float32)
        if len(state) > 1:
            self._shard.restore(state, setting.version)

    def _gradient(self, message: Arrived) -> None:
        self._post.take(message, self._gradients)
        if message.source in self._left:
            return
        sent = header_of(self._gradients)
        staleness = self._shard.apply(
            body_of(self._gradients), float(sent["rate"]), int(sent["version"]), int(sent["images"])
        )
        self._updates += 1
        self._count(message.source, int(sent["epoch"]), int(sent["images"]), staleness)
        self._answer(message, self._shard.values, staleness)

    def _count(self, group: int, epoch: int, images: int, staleness: int) -> None:
        before = self._applied.get(group, Applied())
        if before.epoch != epoch:
            before = Applied(epoch=epoch)
        late = [*before.staleness, *[0] * (staleness + 1 - len(before.staleness))]
        late[staleness] += 1
        self._applied[group] = Applied(
            epoch=epoch, updates=before.updates + 1, images=before.images + images, staleness=tuple(late)
        )

    def _leave(self, message: Arrived) -> None:
        self._left.add(int(self._post.take_text(message)))

    def _tell_applied(self, message: Arrived) -> None:
        group = int(self._post.take_text(message))
        found = self._applied.get(group, Applied())
        self._post.send_text(found.model_dump_json().encode(), message.source, Tag.APPLIED)

    def _values(self, message: Arrived) -> None:
        self._post.take_text(message)
        self._answer(message, self._shard.values)

    def _average(self, message: Arrived) -> None:
        self._post.take_text(message)
        self._answer(message, self._shard.average)

    def _answer(self, message: Arrived, values: Vector, staleness: int = 0) -> None:
        # A group asks again only after it has the answer: its buffer is free then.
        answer = self._answers.setdefault(message.source, np.empty(len(values) + HEADER_VALUES, np.float32))
        body_of(answer)[:] = values
        header = header_of(answer)
        header["version"], header["images"] = self._shard.version, self._shard.images
        header["staleness"], header["stopped"] = staleness, self._stopped
        self._post.send(answer, message.source, message.tag)

    def _state(self, message: Arrived) -> None:
        self._post.take_text(message)
        vectors = {name: vector.copy() for name, vector in self._shard.state().items()}
        state = State(names=tuple(vectors), version=self._shard.version)
        self._post.send_text(state.model_dump_json().encode(), message.source, Tag.STATE)
        for vector in vectors.values():
            self._post.send(vector, message.source, Tag.VECTOR)

    def _report(self, message: Arrived) -> None:
        self._post.take_text(message)
        now_s = self._clock.monotonic_s()
        passed_s = max(now_s - self._since_s, 1e-9)
        served = Served(updates=self._updates, busy_share=min(1.0, self._busy_s / passed_s))
        self._post.send_text(served.model_dump_json().encode(), message.source, Tag.REPORT)
        self._updates, self._busy_s, self._since_s = 0, 0.0, now_s

    def _stop(self, message: Arrived) -> None:
        self._post.take_text(message)
        self._stopped = True


def serve(places: GroupPlaces, number: int, clock: Clock) -> None:
    """Be the parameter server of this number, until the root of group 0 ends it."""
    post = ZmqMailbox(number, places, (), clock)
    Server(post).run()
    post.close()
