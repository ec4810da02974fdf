"""The reports of groups about their exchange, from their roots to rank 0."""

from __future__ import annotations

from msgspec import Struct
from msgspec.json import Decoder

from aiperf.facts import ExchangeFacts
from replica.trainer.servers.client import Servers
from replica.trainer.servers.mailbox import Mailbox
from replica.trainer.servers.protocol import Applied, Lost, Tag


class Exchanged(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The message of a root at the end of an epoch; `last` if its training is over."""

    facts: ExchangeFacts | None = None
    """Facts of the epoch; None if the group had no update in it."""
    last: bool


_EXCHANGED = Decoder(Exchanged)

LONGEST = 200
"""Largest number of characters of a reason in a record."""


class Board:
    """The reports of all groups, on rank 0."""

    def __init__(self, post: Mailbox, servers: Servers, groups: int) -> None:
        self.first_epoch = 1
        """First epoch of this training: later if it is resumed."""
        self._post = post
        self._servers = servers
        self._others = groups - 1
        self._ended: set[int] = set()
        self._lost: dict[int, Lost] = {}
        self._reported: dict[int, int] = {}
        """Last epoch that each group has reported."""
        self._new: list[ExchangeFacts] = []

    def add(self, facts: ExchangeFacts) -> None:
        """Add the report of group 0, which needs no message."""
        self._new.append(facts)

    def _take(self, group: int, message: Exchanged) -> None:
        if message.last:
            self._ended.add(group)
        if message.facts is not None:
            self._reported[group] = message.facts.epoch
            self._new.append(message.facts)

    def collect(self) -> None:
        """Take the reports that have arrived."""
        # Looked for, not waited for: group 0 must not depend on the pace of the others.
        while (message := self._post.look(None, Tag.EXCHANGED)) is not None:
            self._take(message.source, _EXCHANGED.decode(self._post.take_text(message)))
        while (message := self._post.look(None, Tag.LOST)) is not None:
            lost = Lost.model_validate_json(self._post.take_text(message))
            if lost.group not in self._ended:
                self._ended.add(lost.group)
                self._lost[lost.group] = lost
                self._servers.leave(lost.group)

    @property
    def all_ended(self) -> bool:
        """True if every other group has ended its training."""
        return len(self._ended) == self._others

    def close_lost(self) -> None:
        """Add what lost groups had sent since their last reports, by what the first server applied.

        It is for the end of the training, when nothing of them is under way any more.
        """
        for group, lost in self._lost.items():
            done = self._reported.get(group, 0)
            found = self._servers.applied(group)
            if found.epoch <= done:
                found = Applied(epoch=done + 1)
            self._new.append(
                ExchangeFacts(
                    epoch=max(found.epoch, self.first_epoch),
                    group=group,
                    updates=found.updates,
                    images=found.images,
                    staleness=found.staleness,
                    computing_s=0.0,
                    group_s=0.0,
                    waiting_s=0.0,
                    bytes_exchanged=0,
                    lost=lost.reason[:LONGEST],
                )
            )
        self._lost.clear()

    def take(self) -> list[ExchangeFacts]:
        """Take the reports that have come since the last call."""
        taken, self._new = self._new, []
        return taken
