"""Skeletons: the part of an architecture that the outlines of its children follow from.

A skeleton has the convolutions, dense layers, additions and ReLUs of the graph. Layers with one
input that keep its channels, such as a normalisation, change no outline; their readers read what
they read. Shapes are not inferred and hashes not computed: a child costs a fiftieth of
`Morph.apply`. A morph that cannot be applied to the architecture may give the outline of nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count

from aiperf.errors import ArchitectureError
from aiperf.network.architecture import Architecture, Node
from aiperf.network.layers import Add, Conv, Dense, Input, ReLU
from replica.search.outlines.outline import Skip, Token, token_of
from search_space.morphisms import INSERTED_KERNEL, AddSkip, Deepen, EnlargeKernel, Morph, Widen
from search_space.streams import stream_roots

Size = tuple[int, int]
"""Height and width of an image."""


WIDEST = 2**31
"""Width that no layer reaches: records may come from outside, and distances need bounded ones."""


@dataclass(frozen=True, slots=True)
class Skeleton:
    """The nodes of an architecture that outlines depend on, in order, as parallel tuples."""

    names: tuple[str, ...]
    tokens: tuple[Token | None, ...]
    """Tokens of the nodes; None for layers without weights."""
    inputs: tuple[tuple[str, ...], ...]
    sizes: tuple[Size | None, ...]
    """Sizes of the images that a ReLU gives; None for all other nodes."""
    tunable: frozenset[str]
    """Convolutions whose kernel size is a hyperparameter."""
    left_out: frozenset[str]
    """Names of the other nodes of the architecture that the first skeleton was made of."""


def skeleton_of(architecture: Architecture) -> Skeleton | None:
    """The skeleton of an architecture; None if it has layers that no skeleton can show."""
    read: dict[str, str] = {}
    nodes: list[Node] = []
    for node in architecture.nodes:
        layer = node.layer
        if isinstance(layer, Conv | Dense | Add | Input) or _is_site(architecture, node):
            nodes.append(node)
            read[node.name] = node.name
        # Readers of a layer that is left out read what it reads.
        elif layer.keeps_channels and len(node.inputs) == 1:
            read[node.name] = read[node.inputs[0]]
        else:
            return None
    return Skeleton(
        names=tuple(node.name for node in nodes),
        tokens=tuple(token_of(node.layer) for node in nodes),
        inputs=tuple(tuple(read[name] for name in node.inputs) for node in nodes),
        sizes=tuple(_size(architecture, node) for node in nodes),
        tunable=frozenset(n.name for n in nodes if isinstance(n.layer, Conv) and n.layer.tunable_kernel),
        left_out=frozenset(name for name, kept in read.items() if name != kept),
    )


def described(skeleton: Skeleton) -> tuple[tuple[Token, ...], tuple[Skip, ...]]:
    """The result of `describe` for the architecture, from its skeleton."""
    depths: dict[str, int] = {}
    skips: list[Skip] = []
    for name, token, inputs in zip(skeleton.names, skeleton.tokens, skeleton.inputs, strict=True):
        if len(inputs) == 1:
            depth = depths[inputs[0]]
        elif inputs:
            sources = sorted([depths[source] for source in inputs])
            depth = sources[-1]
            skips += [(source, depth - source) for source in sources[:-1]]
        else:
            depth = 0
        depths[name] = depth if token is None else depth + 1
    return tuple([token for token in skeleton.tokens if token is not None]), tuple(skips)


def grown(skeleton: Skeleton, morph: Morph) -> Skeleton:
    """The skeleton of the architecture that a morph makes.

    Raises ArchitectureError if the nodes that the morph names are not there.
    """
    match morph:
        case Deepen():
            return _deepened(skeleton, morph)
        case Widen():
            return _widened(skeleton, morph)
        case AddSkip():
            return _skipped(skeleton, morph)
        case EnlargeKernel():
            return _enlarged(skeleton, morph)


def with_kernel_size(skeleton: Skeleton, size: int) -> Skeleton:
    """The skeleton of `search_space.hyperparameters.with_kernel_size` of the architecture."""
    tokens = tuple(
        (token[0], size, token[2]) if token is not None and name in skeleton.tunable else token
        for name, token in zip(skeleton.names, skeleton.tokens, strict=True)
    )
    return replace(skeleton, tokens=tokens)


def _deepened(skeleton: Skeleton, morph: Deepen) -> Skeleton:
    place = _site(skeleton, morph.after)
    # The normalisation in between has a name in the architecture, but no place in a skeleton: the
    # first and the last of the three names are taken.
    conv, relu = _new_names(skeleton, "deep", "conv", "bn", "relu")[::2]
    token = (_channels(skeleton, place), INSERTED_KERNEL, 1)
    after = morph.after
    readers = tuple(
        tuple(relu if name == after else name for name in inputs) if after in inputs else inputs
        for inputs in skeleton.inputs[place + 1 :]
    )
    wider = _inserted(
        skeleton, place + 1, [(conv, token, (after,), None), (relu, None, (conv,), skeleton.sizes[place])]
    )
    # Up to the two nodes that were inserted behind the site; whoever read that reads the new ReLU.
    inputs = (*wider.inputs[: place + 3], *readers)
    return replace(wider, inputs=inputs, tunable=skeleton.tunable | {conv})


def _widened(skeleton: Skeleton, morph: Widen) -> Skeleton:
    roots = _roots(skeleton)
    stream = roots.get(morph.stream)
    producers = {
        name
        for name, token in zip(skeleton.names, skeleton.tokens, strict=True)
        if token is not None and token[2] and roots[name] == stream
    }
    if morph.stream not in producers or not 0 < morph.channels < WIDEST:
        raise ArchitectureError(f"cannot widen {morph.stream!r} to {morph.channels} channels")
    tokens = tuple(
        (morph.channels, token[1], token[2]) if token is not None and name in producers else token
        for name, token in zip(skeleton.names, skeleton.tokens, strict=True)
    )
    return replace(skeleton, tokens=tokens)


def _skipped(skeleton: Skeleton, morph: AddSkip) -> Skeleton:
    source, target = _site(skeleton, morph.source), _site(skeleton, morph.target)
    conv, total = _new_names(skeleton, "skip", "conv", "bn", "add")[::2]
    (read,) = skeleton.inputs[target]
    before, after = skeleton.sizes[source], skeleton.sizes[target]
    assert before is not None and after is not None
    channels = _channels(skeleton, target)
    # As `AddSkip.apply` does: a projection only if the shapes differ.
    if before == after and _channels(skeleton, source) == channels:
        wider = _inserted(skeleton, target, [(total, None, (read, morph.source), None)])
    else:
        strides = -(-before[0] // after[0]) * -(-before[1] // after[1])
        projection = (conv, (channels, 1, strides), (morph.source,), None)
        wider = _inserted(skeleton, target, [projection, (total, None, (read, conv), None)])
    # Further back by the nodes that were inserted in front of it.
    target = wider.names.index(morph.target, target)
    return replace(wider, inputs=(*wider.inputs[:target], (total,), *wider.inputs[target + 1 :]))


def _enlarged(skeleton: Skeleton, morph: EnlargeKernel) -> Skeleton:
    place = _place(skeleton, morph.conv)
    token = skeleton.tokens[place]
    if token is None:
        raise ArchitectureError(f"cannot enlarge the kernel of {morph.conv!r}")
    larger = (token[0], token[1] + 2, token[2])
    return replace(skeleton, tokens=(*skeleton.tokens[:place], larger, *skeleton.tokens[place + 1 :]))


def _inserted(
    skeleton: Skeleton, place: int, nodes: list[tuple[str, Token | None, tuple[str, ...], Size | None]]
) -> Skeleton:
    names, tokens, inputs, sizes = zip(*nodes, strict=True)
    return replace(
        skeleton,
        names=(*skeleton.names[:place], *names, *skeleton.names[place:]),
        tokens=(*skeleton.tokens[:place], *tokens, *skeleton.tokens[place:]),
        inputs=(*skeleton.inputs[:place], *inputs, *skeleton.inputs[place:]),
        sizes=(*skeleton.sizes[:place], *sizes, *skeleton.sizes[place:]),
    )


def _roots(skeleton: Skeleton) -> dict[str, str]:
    """The representative of every node's stream of channels."""
    nodes = zip(skeleton.names, skeleton.tokens, skeleton.inputs, strict=True)
    return stream_roots((name, inputs if token is None else ()) for name, token, inputs in nodes)


def _channels(skeleton: Skeleton, place: int) -> int:
    """Channels that a node gives: those of its input, up to a layer with weights."""
    # Additions and ReLUs keep the channels of their inputs, all of which have as many: the first
    # will do.
    while (token := skeleton.tokens[place]) is None:
        if not skeleton.inputs[place]:
            raise ArchitectureError(f"{skeleton.names[place]!r} has the channels of the input")
        place = skeleton.names.index(skeleton.inputs[place][0])
    return token[0]


def _place(skeleton: Skeleton, name: str) -> int:
    try:
        return skeleton.names.index(name)
    except ValueError:
        raise ArchitectureError(f"there is no node {name!r}") from None


def _site(skeleton: Skeleton, name: str) -> int:
    place = _place(skeleton, name)
    if skeleton.sizes[place] is None:
        raise ArchitectureError(f"{name!r} is not a ReLU on images")
    return place


def _new_names(skeleton: Skeleton, prefix: str, *parts: str) -> tuple[str, ...]:
    """Names as morphisms give them, with the first number that no node has.

    Later morphs of a record refer to nodes by these names.
    """
    taken, left_out = set(skeleton.names), skeleton.left_out
    for number in count(1):
        names = tuple(f"{prefix}{number}_{part}" for part in parts)
        if not any(name in taken or name in left_out for name in names):
            return names
    raise AssertionError


def _is_site(architecture: Architecture, node: Node) -> bool:
    return isinstance(node.layer, ReLU) and len(architecture.shapes[node.name]) == 3


def _size(architecture: Architecture, node: Node) -> Size | None:
    if not _is_site(architecture, node):
        return None
    height, width, _ = architecture.shapes[node.name]
    return height, width
