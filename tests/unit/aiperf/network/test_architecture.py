import random

import pytest

from aiperf.errors import ArchitectureError
from aiperf.network.architecture import Architecture, Node
from aiperf.network.layers import Add, Conv, Dense, Flatten, GlobalAveragePool, Input, MaxPool, ReLU, Softmax, ZeroPad
from search_space.resnet import resnet


def chain(*layers: tuple[str, object]) -> Architecture:
    nodes: list[Node] = []
    for name, layer in layers:
        nodes.append(Node(name, layer, (nodes[-1].name,) if nodes else ()))  # type: ignore[arg-type]
    return Architecture(tuple(nodes))


def test_shapes_of_a_non_square_network() -> None:
    network = chain(
        ("in", Input(17, 30, 3)),
        ("pad", ZeroPad((1, 2), (0, 3))),
        ("conv", Conv(8, kernel=(3, 5), stride=(2, 1), padding="valid", dilation=(1, 2))),
        ("pool", MaxPool((2, 3), (2, 3), padding="same")),
        ("flat", Flatten()),
        ("fc", Dense(4)),
        ("softmax", Softmax()),
    )
    assert network.shapes["pad"] == (20, 33, 3)
    assert network.shapes["conv"] == (9, 25, 8)
    assert network.shapes["pool"] == (5, 9, 8)
    assert network.output_shape == (4,)
    assert network.weight_shapes(network.by_name["conv"]) == {"kernel": (3, 5, 3, 8)}
    assert network.parameter_count == 3 * 5 * 3 * 8 + 5 * 9 * 8 * 4 + 4


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ((Node("a", Input(8, 8, 3)), Node("a", ReLU(), ("a",))), "unique; repeated: a"),
        ((Node("a", Input(8, 8, 3)), Node("b", ReLU(), ("x",))), "'b' reads 'x', which does not exist"),
        (
            (Node("a", Input(8, 8, 3)), Node("b", Add(), ("a", "c")), Node("c", ReLU(), ("b",))),
            "cyclic: .*b.*c|cyclic: .*c.*b",
        ),
        ((Node("b", ReLU(), ("a",)), Node("a", Input(8, 8, 3))), "topological order"),
        ((Node("a", Input(8, 8, 3)), Node("b", ReLU(), ("a",)), Node("c", ReLU(), ("a",))), "nothing reads .* b"),
        ((Node("a", ReLU()),), "exactly one input node, found 0"),
        ((Node("a", Input(8, 8, 3)), Node("b", Add(), ("a",))), "has 1 input.*at least 2"),
        ((Node("a", Input(8, 8, 3)), Node("b", Dense(3), ("a",))), "'b' .dense. needs a flat input"),
        ((Node("a", Input(8, 8, 3)), Node("b", Conv(4, groups=2), ("a",))), "'b' .conv. 3 input channels"),
        ((Node("a", Input(2, 2, 3)), Node("b", MaxPool((3, 3), padding="valid"), ("a",))), "window of 3"),
    ],
)
def test_invalid_graphs_are_refused_naming_the_node(nodes: tuple[Node, ...], message: str) -> None:
    with pytest.raises(ArchitectureError, match=message):
        Architecture(nodes)


@pytest.mark.parametrize(
    "make",
    [lambda: Conv(0), lambda: Conv(4, stride=(0, 1)), lambda: Conv(5, groups=2), lambda: MaxPool(window=(0, 1))],
)
def test_layers_refuse_impossible_parameters(make: object) -> None:
    with pytest.raises(ValueError, match="must be"):
        make()  # type: ignore[operator]


def test_hash_ignores_names_and_order_but_not_structure() -> None:
    original = resnet(50, 32, 10)
    renamed = Architecture(tuple(Node(f"x{n.name}", n.layer, tuple(f"x{i}" for i in n.inputs)) for n in original.nodes))
    assert renamed.hash == original.hash
    assert original.hash == resnet(50, 32, 10).hash
    others = {resnet(101, 32, 10).hash, resnet(50, 64, 10).hash, resnet(50, 32, 11).hash}
    assert len(others | {original.hash}) == 4


def test_hash_of_an_addition_does_not_depend_on_the_order_of_its_inputs() -> None:
    def network(inputs: tuple[str, str], shared: bool = False) -> Architecture:
        nodes = [Node("in", Input(8, 8, 3)), Node("a", Conv(4), ("in",))]
        nodes += [] if shared else [Node("b", Conv(4, kernel=(5, 5)), ("in",))]
        return Architecture((*nodes, Node("sum", Add(), inputs), Node("gap", GlobalAveragePool(), ("sum",))))

    assert network(("a", "b")).hash == network(("b", "a")).hash
    assert network(("a", "a"), shared=True).hash != network(("a", "b")).hash


def test_hash_tells_a_layer_used_twice_from_two_equal_layers() -> None:
    head = (Node("in", Input(8, 8, 3)), Node("a", Conv(4), ("in",)))
    once = Architecture((*head, Node("sum", Add(), ("a", "a"))))
    twice = Architecture((*head, Node("b", Conv(4), ("in",)), Node("sum", Add(), ("a", "b"))))
    assert once.hash != twice.hash


def test_hash_does_not_depend_on_the_order_of_independent_nodes() -> None:
    nodes = list(resnet(50, 32, 10).nodes)
    names = [node.name for node in nodes]
    shortcut = names.index("s2b1_sc")
    # The projection (two nodes) may come before or after the first convolution of the block.
    moved = [*nodes[:shortcut], *nodes[shortcut + 2 : shortcut + 10], *nodes[shortcut : shortcut + 2]]
    moved += nodes[shortcut + 10 :]
    assert sorted(n.name for n in moved) == sorted(names)
    assert Architecture(tuple(moved)).hash == resnet(50, 32, 10).hash


def test_resnet_refuses_impossible_sizes() -> None:
    for arguments, message in (
        ((34, 224, 1000), "50, 101, 152"),
        ((50, 0, 10), "image size"),
        ((50, 32, 1), "classes"),
    ):
        with pytest.raises(ArchitectureError, match=message):
            resnet(*arguments)


def test_architectures_are_immutable_values() -> None:
    first, second = resnet(50, 32, 10), resnet(50, 32, 10)
    assert first == second
    assert len({first, second}) == 1
    with pytest.raises(AttributeError):
        first.nodes = ()  # type: ignore[misc]
    assert random.Random(1).choice(first.nodes).name
