"""Network morphisms: pure functions from an architecture to a grown one (Wei et al. 2016; Chen et al. 2016)."""

from __future__ import annotations

from itertools import count

from aiperf.architecture import Architecture, Node
from aiperf.errors import ArchitectureError
from aiperf.layers import BatchNorm, Conv, ReLU

INSERTED_KERNEL = 3
"""Kernel size of an inserted convolution before its hyperparameter is tuned."""


def deepen_sites(architecture: Architecture) -> tuple[str, ...]:
    """Names of the nodes after which a block can be inserted: every ReLU on images."""
    return tuple(
        node.name
        for node in architecture.nodes
        if isinstance(node.layer, ReLU) and len(architecture.shapes[node.name]) == 3
    )


def deepen(architecture: Architecture, after: str) -> Architecture:
    """Insert a block (convolution, batch normalisation, ReLU) of the same shape after a ReLU.

    Everything that read the ReLU reads the block. The block follows a ReLU, so with an identity kernel its own
    ReLU changes nothing (paper, section 4.1; Auto-Keras, Jin et al. 2019). Raises ArchitectureError where
    `after` is no such node.
    """
    if after not in deepen_sites(architecture):
        raise ArchitectureError(f"cannot deepen after {after!r}: it is no ReLU on images of this architecture")
    block = _block(architecture, after)
    nodes: list[Node] = []
    for node in architecture.nodes:
        inputs = tuple(block[-1].name if name == after else name for name in node.inputs)
        nodes.append(Node(node.name, node.layer, inputs))
        if node.name == after:
            nodes.extend(block)
    return Architecture(tuple(nodes))


def _block(architecture: Architecture, after: str) -> tuple[Node, ...]:
    channels = architecture.shapes[after][2]
    number = next(n for n in count(1) if f"deep{n}_conv" not in architecture.by_name)
    conv = Conv(channels, kernel=(INSERTED_KERNEL, INSERTED_KERNEL), tunable_kernel=True)
    return (
        Node(f"deep{number}_conv", conv, (after,)),
        Node(f"deep{number}_bn", BatchNorm(), (f"deep{number}_conv",)),
        Node(f"deep{number}_relu", ReLU(), (f"deep{number}_bn",)),
    )
