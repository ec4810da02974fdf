"""Outlines: the part of an architecture that the search compares, without its graph.

A run has thousands of architectures. Whole, each takes about 100 kB of memory; its outline takes
one. Only those that children are made from are needed whole.

Outlines follow from the records of how each architecture was made. A start names the parent and the
morphs, or the base and the kernel size; `aiperf verify` checks that these make the stored
architecture. So a file is read only of an architecture that was not made of another one, or of
which the start cannot be followed.

A skeleton is the part that the outlines of children follow from: the convolutions, dense layers,
additions and ReLUs of the graph. Layers with one input that keep its channels, such as a
normalisation, change no outline; their readers read what they read. Shapes are not inferred and
hashes not computed: a child costs a fiftieth of `Morph.apply`. A morph that cannot be applied to
the architecture may give the outline of nothing.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import count
from typing import NamedTuple

from aiperf.errors import ArchitectureError
from aiperf.network.architecture import Architecture, Node
from aiperf.network.layers import Add, Conv, Dense, Input, Layer, ReLU
from replica.search.outcomes import Start
from search_space import morphisms
from search_space.streams import stream_roots

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


def grown(skeleton: Skeleton, morph: morphisms.Morph) -> Skeleton:
    """The skeleton of the architecture that a morph makes.

    Raises ArchitectureError if the nodes that the morph names are not there.
    """
    match morph:
        case morphisms.Deepen():
            return _deepened(skeleton, morph)
        case morphisms.Widen():
            return _widened(skeleton, morph)
        case morphisms.AddSkip():
            return _skipped(skeleton, morph)
        case morphisms.EnlargeKernel():
            return _enlarged(skeleton, morph)


def with_kernel_size(skeleton: Skeleton, size: int) -> Skeleton:
    """The skeleton of `search_space.hyperparameters.with_kernel_size` of the architecture."""
    tokens = tuple(
        (token[0], size, token[2]) if token is not None and name in skeleton.tunable else token
        for name, token in zip(skeleton.names, skeleton.tokens, strict=True)
    )
    return replace(skeleton, tokens=tokens)


def _deepened(skeleton: Skeleton, morph: morphisms.Deepen) -> Skeleton:
    place = _site(skeleton, morph.after)
    # The normalisation in between has a name in the architecture, but no place in a skeleton: the
    # first and the last of the three names are taken.
    conv, relu = _new_names(skeleton, "deep", "conv", "bn", "relu")[::2]
    token = (_channels(skeleton, place), morphisms.INSERTED_KERNEL, 1)
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


def _widened(skeleton: Skeleton, morph: morphisms.Widen) -> Skeleton:
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


def _skipped(skeleton: Skeleton, morph: morphisms.AddSkip) -> Skeleton:
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


def _enlarged(skeleton: Skeleton, morph: morphisms.EnlargeKernel) -> Skeleton:
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


MOST_SKELETONS = 1024
"""Skeletons that are kept, the last ones in use, as parents: each takes about 5 kB."""


class _Origin(NamedTuple):
    """The architecture that another one was made of, and how."""

    source: str
    morphs: tuple[morphisms.MorphData, ...]
    kernel_size: int | None


class Family:
    """The outlines of architectures by hash, each made once.

    `load` gives an architecture, `first` the start of its first trial, and `started` that of any.
    """

    def __init__(
        self, load: Loader, first: Callable[[str], Start | None], started: Callable[[int], Start | None]
    ) -> None:
        self._load = load
        self._first = first
        self._started = started
        self._outlines: dict[str, Outline] = {}
        self._skeletons: dict[str, Skeleton | None] = {}

    def outline(self, architecture_hash: str) -> Outline:
        """The outline of an architecture.

        Raises ArchitectureError if its file is needed and is missing or damaged.
        """
        if architecture_hash not in self._outlines:
            self._outlines[architecture_hash] = self._outline(architecture_hash)
        return self._outlines[architecture_hash]

    def _outline(self, name: str) -> Outline:
        skeleton = None
        with suppress(ArchitectureError):  # an ancestor's file may be missing
            skeleton = self._skeleton(name)
        if skeleton is None:
            return outlined(self._load(name), self._load)
        return Outline(name, *shared(*described(skeleton)), self._load)

    def _skeleton(self, name: str) -> Skeleton | None:
        """The skeleton of an architecture, made from that of its nearest ancestor that is kept."""
        descent, passed = list[tuple[str, _Origin]](), set[str]()
        while name not in self._skeletons:
            passed.add(name)
            origin = self._origin(name)
            # Records from outside may make an architecture its own ancestor.
            if origin is None or origin.source in passed:
                self._keep(name, skeleton_of(self._load(name)))
                break
            descent.append((name, origin))
            name = origin.source
        skeleton = self._keep(name, self._skeletons[name])
        for child, origin in reversed(descent):
            made = _made(skeleton, origin) if skeleton is not None else None
            skeleton = self._keep(child, made or skeleton_of(self._load(child)))
        return skeleton

    def _origin(self, name: str) -> _Origin | None:
        """The origin of an architecture; None if it has none, or its start does not say how."""
        start = self._first(name)
        if start is None:
            return None
        if start.point > 0 and start.base is not None:
            base, size = self._started(start.base), start.hyperparameters.get("kernel_size")
            if base is not None and base.architecture != name:
                return _Origin(base.architecture, (), size) if isinstance(size, int) and 0 < size < WIDEST else None
            start = base or start
        if start.parent is None or not 1 <= len(start.morphs) <= morphisms.MAX_MORPHS:
            return None
        return _Origin(start.parent, start.morphs, None)

    def _keep(self, name: str, skeleton: Skeleton | None) -> Skeleton | None:
        # Inserted anew, it is the last in the dictionary's order: the first one is the one that was
        # out of use longest.
        self._skeletons.pop(name, None)
        self._skeletons[name] = skeleton
        if len(self._skeletons) > MOST_SKELETONS:
            del self._skeletons[next(iter(self._skeletons))]
        return skeleton


def _made(source: Skeleton, origin: _Origin) -> Skeleton | None:
    """The skeleton that an origin makes of its source's; None if the start cannot be followed."""
    if origin.kernel_size is not None:
        return with_kernel_size(source, origin.kernel_size)
    try:
        for data in origin.morphs:
            source = grown(source, morphisms.morph_from_data(data))
    except (ArchitectureError, TypeError):
        return None
    return source
