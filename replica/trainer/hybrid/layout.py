"""The places of groups and parameter servers among the ranks of a job."""

from __future__ import annotations

from dataclasses import dataclass

from aiperf.errors import TrialFailedError
from replica.trainer.settings import RankSettings


@dataclass(frozen=True, slots=True)
class Layout:
    """The ranks of a job: groups of equal size in turn, and then the servers.

    The first rank of a group is its root, which talks to the servers.
    """

    groups: int
    size: int
    """Number of ranks of a group."""
    servers: int

    @classmethod
    def of(cls, settings: RankSettings) -> Layout:
        """The layout that settings ask for.

        Raises TrialFailedError ("ranks") if the groups cannot be of equal size.
        """
        if settings.ranks % settings.groups:
            raise TrialFailedError("ranks", f"{settings.groups} groups cannot share {settings.ranks} ranks evenly")
        return cls(settings.groups, settings.ranks // settings.groups, settings.servers)

    @property
    def ranks(self) -> int:
        """Number of ranks of all groups and servers."""
        return self.groups * self.size + self.servers

    @property
    def roots(self) -> range:
        """The ranks of the groups' roots."""
        return range(0, self.groups * self.size, self.size)

    @property
    def server_ranks(self) -> range:
        """The ranks of the servers."""
        return range(self.groups * self.size, self.ranks)

    def group_of(self, rank: int) -> int:
        """The group of a rank; servers have the number after the last group."""
        return min(rank // self.size, self.groups)
