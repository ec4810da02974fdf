"""The reports of groups about their exchange, from their roots to rank 0."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.json import decode
from msgspec.structs import replace

from aiperf.facts import ExchangeFacts
from replica.trainer.servers.client import Servers
from replica.trainer.servers.protocol import Lost, Tag
from replica.trainer.servers.tally import Tally

if TYPE_CHECKING:  # pyzmq may not be installed
    from replica.trainer.servers.zeromq import ZmqMailbox


class Exchanged(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The message of a root at the end of an epoch; `last` if its training is over."""

    facts: ExchangeFacts | None = None
    """Facts of the epoch; None if the group had no update in it."""
    last: bool


class Beginning(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The message of rank 0 to every root, with which a group begins to train."""

    resumed: int
    """Number of epochs of the earlier training that this one resumes."""
    done: int
    """Number of epochs that the group does not train."""
    asked: int = 0
    """Number below which the servers take questions of the group for those of lost ranks."""


QUESTIONS = 1 << 32
"""More questions than a group asks between two losses."""

LONGEST = 200
"""Largest number of characters of a reason in a record."""


class Board:
    """The reports of all groups, on rank 0."""

    def __init__(self, post: ZmqMailbox, servers: Servers, groups: int) -> None:
        self.first_epoch = 1
        """First epoch of this training: later if it is resumed."""
        self._post = post
        self._servers = servers
        self._others = groups - 1
        self.said: tuple[bytes, ...] = ()
        """The agent's messages before the training, which a group that comes back needs as well."""
        self._ended: set[int] = set()
        self._losses = Counter[int]()
        self._back: dict[int, bool] = {}
        """Lost groups whose ranks were started again; True if they are ready to train."""
        self._returned: set[int] = set()
        """Groups that have come back, and reported nothing since."""
        self._reported: dict[int, int] = {}
        """Last epoch that each group has reported."""
        self._new: list[ExchangeFacts] = []

    def add(self, facts: ExchangeFacts) -> None:
        """Add the report of group 0, which needs no message."""
        self._new.append(facts)

    def _take(self, group: int, message: Exchanged) -> None:
        if message.last:
            self._ended.add(group)
        # That of a group that was lost meanwhile may come late: its epoch is recorded already.
        if message.facts is not None and message.facts.epoch > self._reported.get(group, 0):
            self._record(message.facts)

    def _record(self, facts: ExchangeFacts) -> None:
        """Add the epoch of a group other than 0."""
        if facts.group in self._returned:
            self._returned.discard(facts.group)
            facts = replace(facts, returned=True)
        self._reported[facts.group] = facts.epoch
        self._new.append(facts)

    def collect(self) -> None:
        """Take the reports that have arrived."""
        # Looked for, not waited for: group 0 must not depend on the pace of the others.
        while (message := self._post.look(None, Tag.EXCHANGED)) is not None:
            self._take(message.source, decode(self._post.take_text(message), type=Exchanged))
        while (message := self._post.look(None, Tag.LOST)) is not None:
            lost = decode(self._post.take_text(message), type=Lost)
            # First: the ranks of a group that had come back are lost as well, and must say again
            # that they are here.
            self._back.pop(lost.group, None)
            if lost.group not in self._ended:
                self._ended.add(lost.group)
                self._losses[lost.group] += 1
                # Each loss begins a new range of numbers: the ranks that are lost asked below it,
                # those that take their place ask from it on (`Beginning.asked`).
                self._close(lost, self._losses[lost.group] * QUESTIONS)
        for group in self._senders(Tag.HERE):
            self._back[group] = False
            for text in self.said:
                self._post.send(text, group, Tag.BEGIN)
        # Ranks gather their devices when they are built; what they gather later says nothing new.
        self._back.update(dict.fromkeys(self._senders(Tag.GATHERED) & self._back.keys(), True))

    def _senders(self, tag: Tag) -> set[int]:
        """Take the messages with a tag; give those that they come from."""
        found = set()
        while (message := self._post.look(None, tag)) is not None:
            self._post.take_text(message)
            found.add(message.source)
        return found

    def admit(self, done: int, epochs: int) -> list[tuple[int, Beginning]]:
        """Take back the groups that are ready, from the epoch after `done` on: those to begin.

        A group that had been ahead begins after its last epoch. One that would have no epoch left
        of all `epochs` stays lost.
        """
        admitted = []
        for group in [group for group, ready in self._back.items() if ready and group in self._ended]:
            first = max(done, self._reported[group])
            if first < epochs:
                del self._back[group]
                self._ended.discard(group)
                self._returned.add(group)
                self._reported[group] = first
                asked = self._losses[group] * QUESTIONS
                admitted.append((group, Beginning(resumed=self.first_epoch - 1, done=first, asked=asked)))
        return admitted

    @property
    def awaited(self) -> str:
        """The groups that still train, in words."""
        return "groups " + ", ".join(str(group) for group in range(1, self._others + 1) if group not in self._ended)

    @property
    def all_ended(self) -> bool:
        """True if every other group has ended its training."""
        return len(self._ended) == self._others

    def _close(self, lost: Lost, asked: int) -> None:
        """End the questions of a lost group below a number, and add what was applied of it after
        its last report, by the first server."""
        done = self._reported.get(lost.group, self.first_epoch - 1)
        # Without an update there is still an epoch, of zeros: the loss is recorded in it.
        *found, last = self._servers.leave(lost.group, asked, done) or [Tally(done + 1).facts(lost.group, 0)]
        for each in (*found, replace(last, lost=lost.reason[:LONGEST])):
            self._record(each)

    def take(self) -> list[ExchangeFacts]:
        """Take the reports that have come since the last call."""
        taken, self._new = self._new, []
        return taken
