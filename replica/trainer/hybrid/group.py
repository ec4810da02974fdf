"""The ranks of one group, and their way to the other groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter

from aiperf.clock import Clock
from aiperf.errors import TrialFailedError
from replica.trainer.collectives.contract import Collective
from replica.trainer.collectives.rank import local_rank_of
from replica.trainer.framework import Framework
from replica.trainer.hybrid.exchange import Exchange
from replica.trainer.hybrid.layout import Layout
from replica.trainer.servers.client import end_ranks
from replica.trainer.servers.mailbox import MpiPost, wait_for
from replica.trainer.servers.protocol import Tag
from replica.trainer.settings import RankSettings

_TEXTS = TypeAdapter(tuple[str, ...])


class GroupCollective(Collective):
    """The collective of a group: the framework's own inside of it, MPI between the roots.

    `rank` and `size` are those inside the group; `local_rank` counts the ranks of all groups on the
    node, since they share its accelerators.
    """

    def __init__(self, post: MpiPost, layout: Layout, inner: Collective) -> None:
        self.post = post
        self.layout = layout
        self.inner = inner
        """The ranks of this group alone."""
        self.rank = inner.rank
        self.size = inner.size
        self.groups = layout.groups
        self.local_rank = local_rank_of()
        self.group = layout.group_of(post.rank)
        self.exchange: Exchange | None = None
        """The exchange with the servers; None until the training begins."""

    @property
    def is_leader(self) -> bool:
        """True on rank 0 of all groups."""
        return self.post.rank == 0

    def broadcast(self, data: bytes) -> bytes:
        """Give every rank of every group the bytes that rank 0 of all passed."""
        if self.is_leader:
            for root in self.layout.roots[1:]:
                self.post.send_text(data, root, Tag.BEGIN)
        elif self.rank == 0:
            data = self.post.take_text(wait_for(self.post, 0, Tag.BEGIN))
        return self.inner.broadcast(data)

    def gather(self, text: str) -> tuple[str, ...]:
        """Collect the texts of all groups, by group, on rank 0; on others those of the group."""
        texts = self.inner.gather(text)
        if self.rank == 0 and not self.is_leader:
            self.post.send_text(_TEXTS.dump_json(texts), 0, Tag.GATHERED)
        elif self.is_leader:
            for root in self.layout.roots[1:]:
                texts += _TEXTS.validate_json(self.post.take_text(wait_for(self.post, root, Tag.GATHERED)))
        return texts

    def broadcast_variables(self, variables: Sequence[Any]) -> None:
        """Give every rank of the group the values of its root."""
        self.inner.broadcast_variables(variables)

    def average_variables(self, variables: Sequence[Any]) -> None:
        """Give every rank of the group their mean."""
        self.inner.average_variables(variables)

    def sum_tensors(self, tensors: Sequence[Any], name: str) -> list[Any]:
        """Sum tensors over the ranks of the group."""
        return self.inner.sum_tensors(tensors, name)

    def close(self) -> None:
        """Leave the group and, with all other ranks, the job, when rank 0 is at its end.

        `MPI_Finalize` waits for all ranks by polling without a pause. A group that is early would
        take cores from groups that still train: it waits for the message, with pauses.
        """
        self.inner.close()
        if self.is_leader:
            end_ranks(self.post, range(1, self.layout.ranks))
        else:
            self.post.take_text(wait_for(self.post, 0, Tag.END))
        self.post.close()


def open_ranks(framework: Framework, settings: RankSettings, clock: Clock) -> Collective:
    """Join all ranks, or those of this rank's group if there are parameter servers.

    Raises TrialFailedError ("ranks") if the job has more or fewer ranks than it should.
    """
    if not settings.servers:
        return framework.open_collective(settings.ranks)
    layout, post = Layout.of(settings), MpiPost(clock)
    if post.size != layout.ranks:
        raise TrialFailedError("ranks", f"{layout.ranks} ranks were asked for, the starter has started {post.size}")
    # `Split` is collective: servers call it, too (`servers.server.serve`), with a number of their
    # own.
    part = post.part(layout.group_of(post.rank))
    return GroupCollective(post, layout, framework.open_collective(layout.size, part))
