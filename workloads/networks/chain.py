"""The construction of a network as a chain of nodes."""

from __future__ import annotations

from dataclasses import dataclass, field

from aiperf.network.architecture import Architecture, Node
from aiperf.network.layers import Extent, Layer


def cube(size: int, axes: int) -> Extent:
    """The same size along two or three axes."""
    return (size, size, size) if axes == 3 else (size, size)


@dataclass
class Chain:
    """A list of nodes; the next layer reads `last` unless it names its inputs."""

    nodes: list[Node] = field(default_factory=list)
    last: str = ""

    def append(self, name: str, layer: Layer, *inputs: str, shares: str = "") -> str:
        """Add a node and give its name."""
        sources = inputs or ((self.last,) if self.last else ())
        self.nodes.append(Node(name, layer, sources, shares))
        self.last = name
        return name

    def finished(self, heads: tuple[str, ...] = ()) -> Architecture:
        """Make the network. Raises ArchitectureError."""
        return Architecture(tuple(self.nodes), heads)
