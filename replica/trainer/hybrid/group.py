"""The ranks of one group, and their way to the other groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.json import decode, encode
from numpy.typing import NDArray

from aiperf.clock import Clock
from aiperf.errors import TrialFailedError
from replica.trainer.collectives.contract import Collective
from replica.trainer.collectives.rank import local_rank_of
from replica.trainer.framework import Framework
from replica.trainer.hybrid.exchange import Exchange
from replica.trainer.servers.client import end_processes
from replica.trainer.servers.protocol import Lost, Tag
from replica.trainer.settings import GroupPlaces, RankSettings

if TYPE_CHECKING:  # pyzmq may not be installed
    from replica.trainer.servers.zeromq import ZmqMailbox

_LEAD = 0
"""The root of group 0, which leads the training."""


class GroupCollective(Collective):
    """The collective of a group: the framework's own inside of it, messages between the roots.

    `rank` and `size` are those inside the group; `local_rank` counts the ranks of all groups on the
    node, since they share its accelerators.
    """

    def __init__(self, group: int, places: GroupPlaces, inner: Collective, post: ZmqMailbox | None) -> None:
        """`post`: the messages of the group's root; None on its other ranks."""
        self.group = group
        self.places = places
        self.groups = places.groups
        self.inner = inner
        """The ranks of this group alone."""
        self.rank = inner.rank
        self.size = inner.size
        self.local_rank = local_rank_of()
        self.exchange: Exchange | None = None
        """The exchange with the servers; None until the training begins."""
        self.said: list[bytes] = []
        """The messages that the leader has broadcast; empty on other ranks."""
        self._post = post

    @property
    def is_leader(self) -> bool:
        """True on rank 0 of group 0."""
        return self.group == _LEAD and self.rank == 0

    @property
    def post(self) -> ZmqMailbox:
        """The messages of this group's root, which alone may ask for them."""
        assert self._post is not None
        return self._post

    def meet(self) -> None:
        """Wait on the leader until it can send to every other root.

        Raises TrialFailedError ("rank_lost") if a group ends before.
        """
        if self.is_leader:
            for root in range(1, self.groups):
                self._from(root, Tag.HERE)
        elif self.rank == 0:
            self.post.send(b"", _LEAD, Tag.HERE)

    def broadcast(self, data: bytes) -> bytes:
        """Give every rank of every group the bytes that the leader passed."""
        if self.is_leader:
            self.said.append(data)
            for root in range(1, self.groups):
                self.post.send(data, root, Tag.BEGIN)
        elif self.rank == 0:
            data = self.post.take_text(self.post.wait_for(_LEAD, Tag.BEGIN))
        return self.inner.broadcast(data)

    def broadcast_vector(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Give every rank of the group the values of its root."""
        return self.inner.broadcast_vector(values)

    def gather(self, text: str) -> tuple[str, ...]:
        """Collect the texts of all groups, by group, on the leader; on others those of the group.

        Raises TrialFailedError ("rank_lost") if a group has ended: all are needed to begin.
        """
        texts = self.inner.gather(text)
        if self.rank == 0 and not self.is_leader:
            self.post.send(encode(texts), _LEAD, Tag.GATHERED)
        elif self.is_leader:
            for root in range(1, self.groups):
                texts += decode(self._from(root, Tag.GATHERED), type=tuple[str, ...])
        return texts

    def _from(self, root: int, tag: Tag) -> bytes:
        """Wait for a root's message, or for the end of any group."""
        while True:
            # The end first: the group may have been started again, and said that it is here.
            if (end := self.post.look(self.places.starter, Tag.LOST)) is not None:
                raise TrialFailedError("rank_lost", decode(self.post.take_text(end), type=Lost).reason)
            if (found := self.post.look(root, tag)) is not None:
                return self.post.take_text(found)
            self.post.wait()

    def broadcast_variables(self, variables: Sequence[Any]) -> None:
        """Give every rank of the group the values of its root."""
        self.inner.broadcast_variables(variables)

    def average_variables(self, variables: Sequence[Any]) -> None:
        """Give every rank of the group their mean."""
        self.inner.average_variables(variables)

    def sum_tensors(self, tensors: Sequence[Any], name: str) -> list[Any]:
        """Sum tensors over the ranks of the group."""
        return self.inner.sum_tensors(tensors, name)

    def average_gradients(self, gradients: Sequence[Any], sums: Any) -> tuple[Any, list[Any]]:
        """Average gradients over the images of the group."""
        return self.inner.average_gradients(gradients, sums)

    def close(self) -> None:
        """Leave the group and, with all others, the training, when group 0 is at its end."""
        if self.is_leader:
            end_processes(self.post, [*range(1, self.groups), *self.places.server_numbers])
        elif self.rank == 0:
            self.post.take_text(self.post.wait_for(_LEAD, Tag.END))
        self.inner.close()
        if self.rank == 0:
            self.post.close()


def open_ranks(framework: Framework, settings: RankSettings, clock: Clock) -> Collective:
    """Join the ranks that were started together, and the other groups of a hybrid training.

    Raises TrialFailedError ("ranks") if there are more or fewer than there should be, and
    ("rank_lost") if another group has ended.
    """
    inner = framework.open_collective(settings.ranks, settings.exchange_limit_s)
    places = settings.places
    if places is None:
        return inner
    post = _mailbox(settings.number, places, clock) if inner.rank == 0 else None
    group = GroupCollective(settings.number, places, inner, post)
    group.meet()
    return group


def _mailbox(group: int, places: GroupPlaces, clock: Clock) -> ZmqMailbox:
    """The messages of a group's root: to the servers, and to the root of group 0 or from all."""
    from replica.trainer.servers.zeromq import ZmqMailbox  # noqa: PLC0415  (may not be installed)

    return ZmqMailbox(group, places, [number for number in places.addresses if number != group], clock)
