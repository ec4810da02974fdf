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
                self._servers.leave(lost.group, 1 << 62)
                self._close(lost)

    @property
    def all_ended(self) -> bool:
        """True if every other group has ended its training."""
        return len(self._ended) == self._others

    def _close(self, lost: Lost) -> None:
        """Add what was applied of a lost group after its last report, by the first server."""
        done = self._reported.get(lost.group, self.first_epoch - 1)
        found = self._servers.applied(lost.group, done) or [Applied(epoch=done + 1)]
        for each in found:
            self._new.append(
                ExchangeFacts(
                    epoch=each.epoch,
                    group=lost.group,
                    updates=each.updates,
                    images=each.images,
                    staleness=each.staleness,
                    computing_s=0.0,
                    group_s=0.0,
                    waiting_s=0.0,
                    bytes_exchanged=0,
                    lost=lost.reason[:LONGEST] if each is found[-1] else None,
                )
            )
        self._reported[lost.group] = found[-1].epoch

    def take(self) -> list[ExchangeFacts]:
        """Take the reports that have come since the last call."""
        taken, self._new = self._new, []
        return taken
