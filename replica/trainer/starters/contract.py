"""The contract of a rank starter: a pure function from a request to a command line."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RankRequest:
    """Ranks to start: the command line of one rank, their number and their nodes."""

    command: tuple[str, ...]
    ranks: int = 1
    hosts: tuple[str, ...] = ()
    """Nodes that share the ranks evenly, this one first; if empty, all ranks run on this node."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of every rank's environment."""
    interface: str | None = None
    """Network interface between the nodes; if None, the starter chooses.

    The ranks of one node use the loopback.
    """

    @property
    def ranks_per_host(self) -> int:
        """Number of ranks of a node. Raises ValueError if the nodes cannot share them evenly."""
        nodes = max(1, len(self.hosts))
        if self.ranks % nodes:
            raise ValueError(f"{self.ranks} ranks cannot be shared evenly by {nodes} nodes")
        return self.ranks // nodes


RankStarter = Callable[[RankRequest], list[str]]
"""Function that makes the argument list that starts all ranks. Raises ValueError if it cannot."""
