"""A neural architecture as an immutable graph of typed layers: shapes, canonical hash, weights."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from graphlib import CycleError, TopologicalSorter
from hashlib import sha256
from math import prod
from types import MappingProxyType

from aiperf.errors import ArchitectureError
from aiperf.network.layers import Input, InputArray, Layer, Shape, ShapeError

HASH_DIGITS = 16
"""Hexadecimal digits of a hash: with 64 bits, 20,000 trials collide with odds of 1e-11."""

INPUTS = (Input, InputArray)
"""The layers that begin a network."""


@dataclass(frozen=True, slots=True)
class Node:
    """A named layer and the names of the nodes whose outputs it reads, in order."""

    name: str
    layer: Layer
    inputs: tuple[str, ...] = ()
    shares: str = ""
    """An earlier node whose weights it uses, such as a detector on several levels of a pyramid."""
    text: bytes = field(init=False, repr=False, compare=False)
    """The layer as it is hashed."""
    given: tuple[tuple[Shape, ...], Shape] | None = field(default=None, init=False, repr=False, compare=False)
    """The inputs that its layer was last asked about, and the shape that it gives: architectures of
    one run share most nodes, and most nodes stand between the same shapes.
    """
    hashed: tuple[bytes, bytes] | None = field(default=None, init=False, repr=False, compare=False)
    """The digests of its inputs that it was last hashed with, and its digest."""
    counted: tuple[tuple[Shape, ...], bool, int, int, int] | None = field(
        default=None, init=False, repr=False, compare=False
    )
    """The last count (`aiperf.network.operations.totals`): the inputs, whether they are the
    network's input, operations forward and backward, and weights.
    """

    line: str | None = field(default=None, init=False, repr=False, compare=False)
    """The node in an architecture's file, once it was written (`aiperf.network.json_files`)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", _layer_text(self.layer))

    def __hash__(self) -> int:
        # Of equal layers the text is equal, and its hash, unlike theirs, is computed only once.
        return hash((self.name, self.text, self.inputs, self.shares))


@dataclass(frozen=True)
class Architecture:
    """A graph of layers with one input node, in topological order.

    The last node is the network's output. `heads` names further nodes whose outputs leave the
    network, such as the levels of a pyramid.

    Raises ArchitectureError, naming the node, if names repeat, an input is missing, the graph is
    cyclic, a node leads nowhere, or shapes do not fit.
    """

    nodes: tuple[Node, ...]
    heads: tuple[str, ...] = ()
    shapes: Mapping[str, Shape] = field(init=False, repr=False, compare=False)
    """Output shape of every node by name."""

    def __post_init__(self) -> None:
        shapes = _shapes_if_sound(self.nodes, self.heads)
        if shapes is None:  # in words
            _check_order(self.nodes)
            _check_ends(self.nodes, self.heads)
            shapes = _infer_shapes(self.nodes)
        object.__setattr__(self, "shapes", MappingProxyType(shapes))
        self._check_shared()

    def _check_shared(self) -> None:
        for node in self.nodes:
            if node.shares:
                owner = self.by_name.get(node.shares)
                if owner is None or owner.shares or owner.layer != node.layer or self._kernels_differ(owner, node):
                    raise ArchitectureError(f"node {node.name!r} cannot share the weights of {node.shares!r}")

    def _kernels_differ(self, one: Node, other: Node) -> bool:
        return self.weight_shapes(one) != self.weight_shapes(other)

    def __hash__(self) -> int:
        return self._node_hash

    @cached_property
    def _node_hash(self) -> int:
        return hash((self.nodes, self.heads))

    @cached_property
    def by_name(self) -> Mapping[str, Node]:
        """Every node by its name."""
        return MappingProxyType({node.name: node for node in self.nodes})

    @property
    def input_shape(self) -> Shape:
        """Shape of the images that the network reads."""
        return next(self.shapes[n.name] for n in self.nodes if isinstance(n.layer, INPUTS))

    @property
    def output(self) -> Node:
        """The node whose output is the network's output."""
        return self.nodes[-1]

    @property
    def output_shape(self) -> Shape:
        """Shape of the network's output."""
        return self.shapes[self.output.name]

    def input_shapes(self, node: Node) -> tuple[Shape, ...]:
        """Shapes that the node reads."""
        return tuple(self.shapes[name] for name in node.inputs)

    @cached_property
    def hash(self) -> str:
        """Canonical hash: equal for equal graphs, whichever the names and order of their nodes.

        Each node hashes its layer and the hashes of its inputs (sorted if the layer does not depend
        on their order, as in an addition); the graph hashes the sorted node hashes, so a layer used
        twice differs from two equal layers.
        """
        digests: dict[str, bytes] = {}
        for node in self.nodes:
            names = node.inputs
            if len(names) == 1 and not node.shares:  # most nodes
                read = digests[names[0]]
            else:
                inputs = [digests[name] for name in names]
                # An addition of a and b is that of b and a: equal networks, so equal hashes.
                if node.layer.commutes:
                    inputs.sort()
                if node.shares:
                    inputs.append(digests[node.shares])
                read = b"".join(inputs)
            hashed = node.hashed
            if hashed is None or hashed[0] != read:
                hashed = (read, sha256(node.text + read).digest())
                object.__setattr__(node, "hashed", hashed)
            digests[node.name] = hashed[1]
        # Sorted, so that neither names nor the order of independent branches matter.
        whole = b"".join(sorted(digests.values())) + digests[self.output.name]
        whole += b"".join(sorted(digests[name] for name in self.heads))
        return sha256(whole).hexdigest()[:HASH_DIGITS]

    def weight_shapes(self, node: Node) -> dict[str, Shape]:
        """Shapes of a node's weights by name."""
        return node.layer.weight_shapes(self.input_shapes(node))

    def parameters(self, node: Node) -> int:
        """Number of weights of one node, moving statistics included."""
        return sum(prod(shape) for shape in self.weight_shapes(node).values())

    @cached_property
    def parameter_count(self) -> int:
        """Number of weights of the whole network, moving statistics included."""
        return sum(self.parameters(node) for node in self.nodes if not node.shares)

    @cached_property
    def depth(self) -> int:
        """Number of layers with a kernel, as in ResNet-50, projections included."""
        return sum(node.layer.has_kernel for node in self.nodes)


@lru_cache(maxsize=65536)
def _layer_text(layer: Layer) -> bytes:
    return repr(layer).encode()


def _shapes_if_sound(nodes: tuple[Node, ...], heads: tuple[str, ...]) -> dict[str, Shape] | None:
    """Infer the shapes of a sound graph in one pass; None if anything is wrong with the graph."""
    shapes: dict[str, Shape] = {}
    begins = 0
    try:
        for node in nodes:
            names = node.inputs
            inputs = (shapes[names[0]],) if len(names) == 1 else tuple([shapes[name] for name in names])
            begins += not names and isinstance(node.layer, INPUTS)
            given = node.given
            if given is None or given[0] != inputs:
                given = (inputs, _output_shape(node.layer, inputs))
                # Past the frozen class: what is kept is no part of the node's value.
                object.__setattr__(node, "given", given)
            shapes[node.name] = given[1]
    except Exception:  # of any kind: the checks that word it raise it in their order
        return None
    # Every name that is read is one of the nodes' by now; nothing must read the last one's output.
    read = set(heads).union(*[node.inputs for node in nodes], [node.name for node in nodes[-1:]])
    return shapes if begins == 1 and len(shapes) == len(nodes) and read == shapes.keys() else None


def _check_order(nodes: tuple[Node, ...]) -> None:
    names = [node.name for node in nodes]
    repeated = {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else set()
    if repeated:
        raise ArchitectureError(f"node names must be unique; repeated: {', '.join(sorted(repeated))}")
    seen: set[str] = set()
    for node in nodes:
        if not seen.issuperset(node.inputs):
            name = next(name for name in node.inputs if name not in seen)
            if name not in names:
                raise ArchitectureError(f"node {node.name!r} reads {name!r}, which does not exist")
            raise ArchitectureError(_order_problem(nodes, node.name, name))
        seen.add(node.name)


def _order_problem(nodes: tuple[Node, ...], reader: str, source: str) -> str:
    try:
        TopologicalSorter({node.name: node.inputs for node in nodes}).prepare()
    except CycleError as error:
        return f"the graph is cyclic: {' -> '.join(error.args[1])}"
    return f"node {reader!r} reads {source!r}, which comes later; nodes must be in topological order"


def _check_ends(nodes: tuple[Node, ...], heads: tuple[str, ...]) -> None:
    inputs = [node.name for node in nodes if isinstance(node.layer, INPUTS)]
    if len(inputs) != 1:
        raise ArchitectureError(f"needs exactly one input node, found {len(inputs)}: {', '.join(inputs)}")
    unknown = set(heads) - {node.name for node in nodes}
    if unknown:
        raise ArchitectureError(f"heads that do not exist: {', '.join(sorted(unknown))}")
    read = {name for node in nodes for name in node.inputs} | set(heads)
    unread = [node.name for node in nodes[:-1] if node.name not in read]
    if unread:
        raise ArchitectureError(f"nothing reads the output of: {', '.join(unread)}")


def _infer_shapes(nodes: tuple[Node, ...]) -> dict[str, Shape]:
    shapes: dict[str, Shape] = {}
    for node in nodes:
        names = node.inputs
        inputs = (shapes[names[0]],) if len(names) == 1 else tuple([shapes[name] for name in names])
        try:
            shapes[node.name] = _output_shape(node.layer, inputs)
        except ShapeError as error:
            raise ArchitectureError(f"node {node.name!r} ({node.layer.kind}) {error}") from None
    return shapes


@lru_cache(maxsize=65536)
def _output_shape(layer: Layer, inputs: tuple[Shape, ...]) -> Shape:
    """The shape that a layer gives; cached, since architectures share most layers.

    Raises ShapeError if the inputs, or the weights that they lead to, do not fit.
    """
    fewest, most = layer.arity
    if len(inputs) < fewest or (most is not None and len(inputs) > most):
        wanted = fewest if fewest == most else f"at least {fewest}"
        raise ShapeError(f"has {len(inputs)} input(s); it takes {wanted}")
    layer.weight_shapes(inputs)
    return layer.output_shape(inputs)
