"""Random architectures for property tests."""

from hypothesis import strategies as st

from aiperf.errors import ArchitectureError
from aiperf.network.architecture import Architecture, Node
from aiperf.network.layers import (
    Add,
    BatchNorm,
    Concat,
    Conv,
    Dense,
    Dropout,
    Flatten,
    GlobalAveragePool,
    Input,
    Layer,
    MaxPool,
    Padding,
    ReLU,
    Softmax,
    ZeroPad,
)

_PADDINGS: tuple[Padding, ...] = ("same", "valid")
_PAIR = st.tuples(st.integers(1, 3), st.integers(1, 4))


@st.composite
def _layer(draw: st.DrawFn, channels: int) -> Layer:
    kind = draw(st.sampled_from(["conv", "conv", "conv", "batchnorm", "relu", "maxpool", "dropout", "zeropad"]))
    if kind == "conv":
        groups = draw(st.sampled_from([g for g in range(1, channels + 1) if channels % g == 0]))
        stride = draw(_PAIR)
        dilation = draw(_PAIR) if stride == (1, 1) else (1, 1)
        # TensorFlow's depthwise convolution knows square strides and dilations only.
        square = groups == channels > 1
        return Conv(
            filters=groups * draw(st.integers(1, 3)),
            kernel=draw(_PAIR),
            stride=(stride[0], stride[0]) if square else stride,
            padding=draw(st.sampled_from(_PADDINGS)),
            dilation=(1, 1) if square else dilation,
            groups=groups,
            bias=draw(st.booleans()),
        )
    simple: dict[str, Layer] = {
        "batchnorm": BatchNorm(),
        "relu": ReLU(),
        "maxpool": MaxPool(draw(_PAIR), draw(_PAIR), draw(st.sampled_from(_PADDINGS))),
        "dropout": Dropout(0.25),
        "zeropad": ZeroPad(draw(_PAIR), draw(_PAIR)),
    }
    return simple[kind]


def _append(nodes: list[Node], layer: Layer, *inputs: str) -> bool:
    """Add a node unless its shapes do not fit."""
    node = Node(f"n{len(nodes)}", layer, inputs or (nodes[-1].name,))
    try:
        Architecture((*nodes, node))
    except ArchitectureError:
        return False
    nodes.append(node)
    return True


@st.composite
def architectures(draw: st.DrawFn) -> Architecture:
    """A chain of random layers with random additions and concatenations, ending in a classifier."""
    image = Input(draw(st.integers(5, 17)), draw(st.integers(5, 17)), draw(st.integers(1, 4)))
    nodes = [Node("in", image)]
    for _ in range(draw(st.integers(1, 10))):
        shapes = Architecture(tuple(nodes)).shapes
        here = shapes[nodes[-1].name]
        same = [node.name for node in nodes[:-1] if shapes[node.name] == here]
        fitting = [node.name for node in nodes[:-1] if shapes[node.name][:2] == here[:2]]
        merge = draw(st.integers(0, 3))
        if merge == 0 and same:
            _append(nodes, Add(), nodes[-1].name, draw(st.sampled_from(same)))
        elif merge == 1 and fitting:
            _append(nodes, Concat(), nodes[-1].name, draw(st.sampled_from(fitting)))
        else:
            _append(nodes, draw(_layer(here[2])))
    _append(nodes, draw(st.sampled_from([GlobalAveragePool(), Flatten()])))
    _append(nodes, Dense(draw(st.integers(2, 5)), bias=draw(st.booleans())))
    _append(nodes, Softmax())
    return Architecture(tuple(nodes))
