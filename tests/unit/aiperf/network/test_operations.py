import json

import pytest

from aiperf.errors import UncountedLayerError
from aiperf.network import operations
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
    ReLU,
    Softmax,
    ZeroPad,
)
from aiperf.network.operations import Operations, count
from search_space.resnet import resnet
from tests.support.folders import GOLDEN

NETWORKS = json.loads((GOLDEN / "operations.json").read_text())["networks"]


@pytest.mark.parametrize(("name", "size", "classes"), [("224_1000", 224, 1000), ("32_10", 32, 10)])
def test_resnet50_counts_layer_by_layer_what_the_golden_file_says(name: str, size: int, classes: int) -> None:
    golden = NETWORKS[f"resnet50_v1_{name}"]
    counted = [layer for layer in count(resnet(50, size, classes)).layers if layer.kind != "input"]
    biases = {node.name: node.layer.filters for node in resnet(50, size, classes).nodes if isinstance(node.layer, Conv)}
    for ours, theirs in zip(counted, golden["layers"], strict=True):
        found = (ours.name, ours.kind, ours.operations.forward, ours.operations.backward)
        assert found == (theirs["name"], theirs["kind"], theirs["forward"], theirs["backward"])
        # The golden parameters are those of a network whose convolutions have biases.
        assert ours.parameters + biases.get(ours.name, 0) == theirs["parameters"]
    whole = count(resnet(50, size, classes)).operations
    assert (whole.forward, whole.backward, whole.total) == (golden["fp"], golden["bp"], golden["total"])


def test_resnet50_at_224_has_the_specified_numbers() -> None:
    network = count(resnet(50, 224, 1000))
    assert network.operations == Operations(7_806_585_544, 15_246_874_820)
    assert network.operations.total == 23_053_460_364
    assert network.by_kind["conv"].operations == Operations(7_711_850_496, 15_234_582_912)
    assert network.parameters == 25_610_152


def single(layer: Layer, image: Input, after: tuple[Layer, ...] = ()) -> Operations:
    nodes = [Node("in", image)]
    for index, extra in enumerate((*after, layer)):
        nodes.append(Node(f"n{index}", extra, (nodes[-1].name,)))
    return count(Architecture(tuple(nodes))).layers[-1].operations


@pytest.mark.parametrize(
    ("layer", "after", "forward", "backward"),
    [
        # Behind a ReLU a convolution has an input gradient; Ho = ceil(9/2), Wo = 12.
        (Conv(8, (3, 5), (2, 1)), (ReLU(),), 2 * 3 * 5 * 6 * 5 * 12 * 8, 4 * 15 * 6 * 60 * 8 + 2 * 15 * 6 * 8),
        # Directly on the images, or through layers that count zero, it has none.
        (Conv(8, (3, 5), (2, 1)), (), 86400, 86400 + 2 * 15 * 6 * 8),
        (Conv(8, (3, 5), (2, 1)), (Dropout(0.1),), 86400, 86400 + 2 * 15 * 6 * 8),
        (Conv(4, (1, 1), padding="valid"), (ZeroPad((1, 1), (1, 1)),), 2 * 6 * 11 * 14 * 4, 2 * 6 * 154 * 4 + 48),
        # Groups and depthwise: every filter sees Ci / g channels.
        (Conv(6, (3, 3), groups=3), (ReLU(),), 2 * 9 * 2 * 108 * 6, 4 * 9 * 2 * 108 * 6 + 2 * 9 * 2 * 6),
        (Conv(12, (3, 3), groups=6), (ReLU(),), 2 * 9 * 1 * 108 * 12, 4 * 9 * 108 * 12 + 2 * 9 * 12),
        # Dilation shrinks a "valid" output: 9 - 4 by 12 - 4.
        (Conv(2, (3, 3), padding="valid", dilation=(2, 2)), (ReLU(),), 2 * 54 * 40 * 2, 4 * 54 * 40 * 2 + 2 * 54 * 2),
        # A bias of a convolution counts nowhere; that of a dense layer in the update.
        (Conv(4, (1, 1), bias=True), (ReLU(),), 2 * 6 * 108 * 4, 4 * 6 * 108 * 4 + 2 * 6 * 4),
        (Dense(7), (Flatten(),), 2 * 648 * 7, 4 * 648 * 7 + 2 * 649 * 7),
        (BatchNorm(), (), 7 * 648, 36),
        (ReLU(), (), 648, 0),
        (MaxPool((3, 2), (2, 2), "same"), (), 3 * 2 * 5 * 6 * 6, 0),
        (GlobalAveragePool(), (), 648 + 4 * 6, 0),
        (Softmax(), (GlobalAveragePool(),), 13 * 6, 0),
        (Dropout(0.5), (), 0, 0),
        (Flatten(), (), 0, 0),
        (ZeroPad((1, 2), (3, 4)), (), 0, 0),
    ],
)
def test_every_rule_by_hand(layer: Layer, after: tuple[Layer, ...], forward: int, backward: int) -> None:
    assert single(layer, Input(9, 12, 6), after) == Operations(forward, backward)


def test_additions_and_concatenations() -> None:
    nodes = (
        Node("in", Input(4, 5, 3)),
        Node("a", Conv(8), ("in",)),
        Node("b", Conv(8), ("in",)),
        Node("sum", Add(), ("a", "b", "a")),
        Node("cat", Concat(), ("sum", "in")),
        Node("onto", Conv(2, (1, 1)), ("cat",)),
    )
    layers = {layer.name: layer.operations for layer in count(Architecture(nodes)).layers}
    assert layers["sum"] == Operations(2 * 4 * 5 * 8, 0)
    assert layers["cat"] == Operations(0, 0)
    # Not all that the last convolution reads is the images, so it has an input gradient.
    assert layers["onto"] == Operations(2 * 11 * 20 * 2, 4 * 11 * 20 * 2 + 2 * 11 * 2)


def test_an_unknown_layer_is_an_error_that_names_all_such_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(operations.RULES, "softmax")
    monkeypatch.delitem(operations.RULES, "globalpool")
    count.cache_clear()
    with pytest.raises(UncountedLayerError, match=r"2 layer\(s\): gap \(globalpool\), fc_softmax \(softmax\)") as error:
        count(resnet(50, 32, 10))
    assert "aiperf/network/operations.py" in str(error.value)


def test_work_prices_training_with_both_passes_and_evaluation_with_one() -> None:
    assert Operations(10, 25).work(images_trained=3, images_evaluated=2) == 3 * 35 + 2 * 10
