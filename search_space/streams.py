"""Streams of channels: the tensors of an architecture that must have one width.

Batch normalisation, ReLU, pooling, dropout, padding and addition keep the channels of their inputs;
a convolution or a dense layer begins a stream of its own. A residual stage is one stream through
all its additions.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from aiperf.network.architecture import Architecture, Node
from aiperf.network.layers import Conv


@dataclass(frozen=True, slots=True)
class Stream:
    """The nodes that share one width: those that produce it, keep it, and read it."""

    channels: int
    producers: tuple[str, ...]
    members: tuple[str, ...]
    """Names of the nodes whose output belongs to the stream, producers included."""
    consumers: tuple[str, ...]
    """Names of the convolutions and dense layers whose input belongs to the stream."""


@lru_cache(maxsize=256)
def streams(architecture: Architecture) -> tuple[Stream, ...]:
    """The streams that can be widened, in the order of their first nodes.

    Excluded are those that touch the network's input or output, a grouped convolution, a flattening
    or a concatenation.
    """
    groups: dict[str, list[Node]] = {}
    consumers: dict[str, list[Node]] = {}
    roots = _roots(architecture)
    for node in architecture.nodes:
        groups.setdefault(roots[node.name], []).append(node)
        if not node.layer.keeps_channels:
            for root in {roots[name] for name in node.inputs}:
                consumers.setdefault(root, []).append(node)
    found = (_stream(architecture, members, consumers.get(root, [])) for root, members in groups.items())
    return tuple(stream for stream in found if stream is not None)


def stream_of(architecture: Architecture, name: str) -> Stream | None:
    """The one of `streams` that has a node, in less time than all; None if there is none."""
    if name not in architecture.by_name:
        return None
    roots = _roots(architecture)
    own = roots[name]
    members, consumers = list[Node](), list[Node]()
    for node in architecture.nodes:
        if roots[node.name] == own:
            members.append(node)
        if not node.layer.keeps_channels and any(roots[source] == own for source in node.inputs):
            consumers.append(node)
    return _stream(architecture, members, consumers)


def _roots(architecture: Architecture) -> dict[str, str]:
    return stream_roots((node.name, node.inputs if node.layer.keeps_channels else ()) for node in architecture.nodes)


def stream_roots(nodes: Iterable[tuple[str, Iterable[str]]]) -> dict[str, str]:
    """The representative of every node's stream (union-find).

    A node comes after its inputs, with the names of those whose channels it keeps.
    """
    parents: dict[str, str] = {}

    def find(name: str) -> str:
        while parents[name] != name:
            # Halving the path on each search keeps chains short in networks of hundreds of layers.
            parents[name] = parents[parents[name]]
            name = parents[name]
        return name

    for name, kept in nodes:
        parents[name] = name
        for source in kept:
            # An addition joins the streams of its inputs: their widths must stay equal.
            parents[find(name)] = find(source)
    return {name: find(name) for name in parents}


def _stream(architecture: Architecture, members: list[Node], consumers: list[Node]) -> Stream | None:
    producers = [node for node in members if not node.layer.keeps_channels]
    plain = all(isinstance(node.layer, Conv) and node.layer.groups == 1 for node in producers)
    known = all(
        node.layer.kind == "dense" or (isinstance(node.layer, Conv) and node.layer.groups == 1) for node in consumers
    )
    # The input's own channels, and the classes of the output, are given by the data.
    if not plain or not known or not consumers or architecture.output.name in {node.name for node in members}:
        return None
    return Stream(
        channels=architecture.shapes[producers[0].name][-1],
        producers=tuple(node.name for node in producers),
        members=tuple(node.name for node in members),
        consumers=tuple(node.name for node in consumers),
    )
