"""The reports of groups about their exchange, from their roots to rank 0."""

from __future__ import annotations

from msgspec import Struct
from msgspec.json import Decoder

from aiperf.facts import ExchangeFacts
from replica.trainer.servers.mailbox import Mailbox
from replica.trainer.servers.protocol import Tag


class Exchanged(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The message of a root at the end of an epoch; `last` if its training is over."""

    facts: ExchangeFacts | None = None
    """Facts of the epoch; None if the group had no update in it."""
    last: bool


_EXCHANGED = Decoder(Exchanged)


class Board:
    """The reports of all groups, on rank 0."""

    def __init__(self, post: Mailbox, groups: int) -> None:
        self._post = post
        self._others = groups - 1
        self._ended = 0
        self._new: list[ExchangeFacts] = []

    def add(self, facts: ExchangeFacts) -> None:
        """Add the report of group 0, which needs no message."""
        self._new.append(facts)

    def collect(self) -> None:
        """Take the reports that have arrived."""
        # Looked for, not waited for: group 0 must not depend on the pace of the others.
        while (message := self._post.look(None, Tag.EXCHANGED)) is not None:
            exchanged = _EXCHANGED.decode(self._post.take_text(message))
            self._ended += exchanged.last
            if exchanged.facts is not None:
                self._new.append(exchanged.facts)

    @property
    def all_ended(self) -> bool:
        """True if every other group has ended its training."""
        return self._ended == self._others

    def take(self) -> list[ExchangeFacts]:
        """Take the reports that have come since the last call."""
        taken, self._new = self._new, []
        return taken
