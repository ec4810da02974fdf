"""Outlines: the part of an architecture that the search compares, without its graph.

A run has thousands of architectures. Whole, each takes about 100 kB of memory; its outline takes
one. Only those that children are made from are needed whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from aiperf.network.architecture import Architecture
from aiperf.network.layers import Conv, Dense, Layer

Token = tuple[int, int, int]
"""Width, kernel side, and the product of the strides (0 for a dense layer)."""

Skip = tuple[int, int]
"""Depth of the source of a skip connection, and its span."""

Loader = Callable[[str], Architecture]
"""Function that gives the architecture of a hash. May raise ArchitectureError."""


@dataclass(frozen=True, slots=True)
class Outline:
    """The layers with weights of an architecture in order, and its skip connections."""

    hash: str
    layers: tuple[Token, ...]
    skips: tuple[Skip, ...]
    load: Loader = field(compare=False, repr=False)


Known = Architecture | Outline
"""An architecture, whole or outlined. Both have a `hash`."""


def whole(known: Known) -> Architecture:
    """The architecture itself. May raise ArchitectureError for one that has to be read."""
    return known if isinstance(known, Architecture) else known.load(known.hash)


def outlined(architecture: Architecture, load: Loader) -> Outline:
    """The outline of an architecture that `load` gives."""
    return Outline(architecture.hash, *shared(*describe(architecture)), load)


def shared(layers: Iterable[Token], skips: Iterable[Skip]) -> tuple[tuple[Token, ...], tuple[Skip, ...]]:
    """Layers and skip connections as objects that all architectures of a run share.

    Architectures differ in few layers: shared tuples take a fraction of the memory.
    """
    return tuple(map(_one_layer, layers)), tuple(map(_one_skip, skips))


def describe(architecture: Architecture) -> tuple[tuple[Token, ...], tuple[Skip, ...]]:
    """Layers with weights in topological order, and skip connections in the order of their ends."""
    tokens: list[Token] = []
    depths: dict[str, int] = {}
    skips: list[Skip] = []
    for node in architecture.nodes:
        sources = sorted(depths[name] for name in node.inputs)
        depth = sources[-1] if sources else 0
        if (token := token_of(node.layer)) is not None:
            tokens.append(token)
            depth += 1
        depths[node.name] = depth
        skips += [(source, depth - source) for source in sources[:-1]]
    return tuple(tokens), tuple(skips)


def token_of(layer: Layer) -> Token | None:
    """The token of a layer; None if it has no weights that a distance counts."""
    if isinstance(layer, Conv):
        return layer.filters, layer.kernel[0], layer.stride[0] * layer.stride[1]
    return (layer.units, 1, 0) if isinstance(layer, Dense) else None


@lru_cache(maxsize=4096)
def _one_layer(token: Token) -> Token:
    # Not `token` itself when it is known: the cache gives the first of all equal ones.
    return token


@lru_cache(maxsize=4096)
def _one_skip(skip: Skip) -> Skip:
    return skip
