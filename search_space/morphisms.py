"""Network morphisms: pure functions from an architecture to a grown one, and as plain data.

Deepen, widen, add a skip connection, enlarge a kernel (Wei et al. 2016, "Network Morphism"; Chen et
al. 2016, "Net2Net"). A morph does not rename nodes, so that `search_space.inheritance` can carry
their weights over. With inherited weights a child computes the function of its parent.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import count

from aiperf.errors import ArchitectureError
from aiperf.network.architecture import Architecture, Node
from aiperf.network.layers import Add, BatchNorm, Conv, ReLU
from search_space.streams import Stream, stream_of

MAX_MORPHS = 4
"""Most morphs between a proposal and its trained parent, so that inherited weights help."""

INSERTED_KERNEL = 3
"""Kernel size of an inserted convolution before its hyperparameter is tuned."""

LARGEST_KERNEL = 7
"""Largest side of a kernel: that of ResNet-50's first convolution."""

WIDTH_MULTIPLE = 8
"""Widths grow to multiples of this, so that matrix units are used without waste."""


@dataclass(frozen=True, slots=True)
class Deepen:
    """Insert a block (convolution, batch normalisation, ReLU) after a ReLU on images."""

    after: str

    def apply(self, architecture: Architecture) -> Architecture:
        """Let all readers of the ReLU read the block.

        Raises ArchitectureError if `after` is not a ReLU on images.
        """
        if self.after not in deepen_sites(architecture):
            raise ArchitectureError(f"cannot deepen after {self.after!r}: it is not a ReLU on images")
        # After a ReLU the values are not negative, so that the ReLU of an identity block changes
        # none.
        conv, norm, relu = _names(architecture, "deep", "conv", "bn", "relu")
        channels = architecture.shapes[self.after][2]
        layer = Conv(channels, kernel=(INSERTED_KERNEL, INSERTED_KERNEL), tunable_kernel=True)
        block = (Node(conv, layer, (self.after,)), Node(norm, BatchNorm(), (conv,)), Node(relu, ReLU(), (norm,)))
        nodes: list[Node] = []
        for node in architecture.nodes:
            reads = self.after in node.inputs
            inputs = tuple(relu if name == self.after else name for name in node.inputs) if reads else node.inputs
            nodes.append(replace(node, inputs=inputs) if reads else node)
            if node.name == self.after:
                nodes.extend(block)
        return Architecture(tuple(nodes))


@dataclass(frozen=True, slots=True)
class Widen:
    """Give every convolution of a stream of channels more filters.

    `stream` is the stream's first producer.
    """

    stream: str
    channels: int

    def apply(self, architecture: Architecture) -> Architecture:
        """Widen all producers alike, since the layers in between need one width.

        Raises ArchitectureError if the stream cannot be widened or would not grow.
        """
        stream = find_stream(architecture, self.stream)
        if self.channels <= stream.channels:
            raise ArchitectureError(f"cannot widen {self.stream!r} from {stream.channels} to {self.channels} channels")

        def wider(node: Node) -> Node:
            # Only producers have a width of their own: that of all other layers follows from their
            # inputs.
            if node.name in stream.producers and isinstance(node.layer, Conv):
                return replace(node, layer=replace(node.layer, filters=self.channels))
            return node

        return Architecture(tuple(map(wider, architecture.nodes)))


@dataclass(frozen=True, slots=True)
class AddSkip:
    """Add the output of an earlier ReLU to what a later ReLU reads."""

    source: str
    target: str

    def apply(self, architecture: Architecture) -> Architecture:
        """Add the skip through a batch normalisation with a scale of zero: no effect at first.

        If shapes differ, a strided 1x1 convolution comes before it. Raises ArchitectureError if
        shapes cannot be matched.
        """
        if not _can_skip(architecture, self.source, self.target):
            raise ArchitectureError(f"cannot add a skip connection from {self.source!r} to {self.target!r}")
        target = architecture.by_name[self.target]
        (read,) = target.inputs
        conv, norm, total = _names(architecture, "skip", "conv", "bn", "add")
        projection = _projection(architecture, self.source, read)
        # Before the target, whose input the sum replaces: nodes stand in topological order.
        new = [Node(conv, projection, (self.source,))] if projection else []
        new.append(Node(norm, BatchNorm(zero_scale=True), (conv if projection else self.source,)))
        new.append(Node(total, Add(), (read, norm)))
        nodes: list[Node] = []
        for node in architecture.nodes:
            nodes += [*new, replace(node, inputs=(total,))] if node.name == self.target else [node]
        return Architecture(tuple(nodes))


@dataclass(frozen=True, slots=True)
class EnlargeKernel:
    """Give a convolution a kernel larger by two in both directions."""

    conv: str

    def apply(self, architecture: Architecture) -> Architecture:
        """Enlarge the kernel.

        Raises ArchitectureError unless the node is a convolution in `kernel_sites`.
        """
        if self.conv not in kernel_sites(architecture):
            raise ArchitectureError(f"cannot enlarge the kernel of {self.conv!r}")

        def larger(node: Node) -> Node:
            layer = node.layer
            if node.name == self.conv and isinstance(layer, Conv):
                return replace(node, layer=replace(layer, kernel=(layer.kernel[0] + 2, layer.kernel[1] + 2)))
            return node

        return Architecture(tuple(map(larger, architecture.nodes)))


Morph = Deepen | Widen | AddSkip | EnlargeKernel
MORPH_TYPES: dict[str, type[Morph]] = {kind.__name__: kind for kind in (Deepen, Widen, AddSkip, EnlargeKernel)}
"""Types of morphs by their names in records."""


def deepen_sites(architecture: Architecture) -> tuple[str, ...]:
    """Names of the nodes after which a block can be inserted: every ReLU on images."""
    return tuple(
        node.name
        for node in architecture.nodes
        if isinstance(node.layer, ReLU) and len(architecture.shapes[node.name]) == 3
    )


def kernel_sites(architecture: Architecture) -> tuple[str, ...]:
    """Names of the convolutions whose kernels can grow."""
    return tuple(
        node.name
        for node in architecture.nodes
        if isinstance(node.layer, Conv)
        and node.layer.padding == "same"
        and node.layer.dilation == (1, 1)
        and max(node.layer.kernel) + 2 <= LARGEST_KERNEL
    )


def widths(channels: int) -> tuple[int, ...]:
    """Widths that a stream may grow to: 5/4, 3/2 and 2 times, rounded down to multiples of 8."""
    grown = (channels * quarters // 4 // WIDTH_MULTIPLE * WIDTH_MULTIPLE for quarters in (5, 6, 8))
    return tuple(sorted({width for width in grown if width > channels}))


def find_stream(architecture: Architecture, name: str) -> Stream:
    """The stream whose first producer is `name`.

    Raises ArchitectureError if there is none to widen.
    """
    stream = stream_of(architecture, name)
    if stream is not None and stream.producers[0] == name:
        return stream
    raise ArchitectureError(f"cannot widen {name!r}: it is not the first convolution of a stream that can grow")


def _can_skip(architecture: Architecture, source: str, target: str) -> bool:
    relus = deepen_sites(architecture)
    if source not in relus or target not in relus or relus.index(source) >= relus.index(target):
        return False
    (read,) = architecture.by_name[target].inputs
    reader = architecture.by_name[read]
    # The target reads the source already, directly or through an addition.
    if source == read or (reader.layer.commutes and source in reader.inputs):
        return False
    return _strides(architecture, source, read) is not None


def _strides(architecture: Architecture, source: str, read: str) -> tuple[int, int] | None:
    strides = []
    for before, after in zip(architecture.shapes[source][:2], architecture.shapes[read][:2], strict=True):
        # "Same" padding gives ceil(size / stride) outputs: the smallest stride that can fit is
        # tried, and a larger one gives fewer.
        stride = -(-before // after)
        if -(-before // stride) != after:
            return None
        strides.append(stride)
    return strides[0], strides[1]


def _projection(architecture: Architecture, source: str, read: str) -> Conv | None:
    shape = architecture.shapes[read]
    if architecture.shapes[source] == shape:
        return None
    strides = _strides(architecture, source, read)
    assert strides is not None
    return Conv(shape[2], kernel=(1, 1), stride=strides)


def _names(architecture: Architecture, prefix: str, *parts: str) -> tuple[str, ...]:
    taken = architecture.by_name
    # The first free number: the same architecture and morph give the same names, and so one hash,
    # on every replica.
    number = next(n for n in count(1) if not any(f"{prefix}{n}_{part}" in taken for part in parts))
    return tuple(f"{prefix}{number}_{part}" for part in parts)


MorphData = dict[str, str | int]


def morph_data(morph: Morph) -> MorphData:
    """A morph as its kind and its parameters."""
    return {"kind": type(morph).__name__, **asdict(morph)}


def morph_from_data(data: Mapping[str, str | int]) -> Morph:
    """The morph that the data describes. Raises ArchitectureError."""
    parameters = dict(data)
    kind = parameters.pop("kind", None)
    if kind not in MORPH_TYPES:
        raise ArchitectureError(f"morph kind is {kind!r}; known: {', '.join(MORPH_TYPES)}")
    try:
        return MORPH_TYPES[str(kind)](**parameters)  # type: ignore[arg-type]
    except TypeError as error:
        raise ArchitectureError(f"morph {dict(data)} is not valid: {error}") from None


def apply_all(architecture: Architecture, morphs: Iterable[Morph]) -> Architecture:
    """The architecture after all morphs in turn. Raises ArchitectureError."""
    for morph in morphs:
        architecture = morph.apply(architecture)
    return architecture
