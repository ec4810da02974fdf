"""The built Keras model is the counted one; if it is not, the trial fails and names the layer."""

import keras
import pytest

from aiperf.errors import TrialFailedError
from aiperf.network.architecture import Architecture, Node
from aiperf.network.layers import (
    Add,
    AveragePool,
    BatchNorm,
    Concat,
    Conv,
    ConvTranspose,
    Dense,
    Dropout,
    Flatten,
    GlobalAveragePool,
    Input,
    InputArray,
    Layer,
    LeakyReLU,
    MaxPool,
    ReLU,
    Reshape,
    Scale,
    Sigmoid,
    Softmax,
    Tanh,
    Upsample,
    ZeroPad,
)
from replica.trainer.model.builder import build_model, check_model, set_up
from replica.trainer.model.built import architecture_of, compute_types
from search_space.morphisms import Deepen
from search_space.resnet import resnet

EVERYTHING = Architecture(
    (
        Node("in", Input(15, 11, 4)),
        Node("pad", ZeroPad((1, 2), (0, 3)), ("in",)),
        Node("conv", Conv(6, (3, 5), (2, 1), "valid", bias=True), ("pad",)),
        Node("bn", BatchNorm(zero_scale=True), ("conv",)),
        Node("relu", ReLU(), ("bn",)),
        Node("depthwise", Conv(12, (3, 3), groups=6), ("relu",)),
        Node("grouped", Conv(12, (3, 3), dilation=(2, 2), groups=3), ("relu",)),
        Node("sum", Add(), ("depthwise", "grouped")),
        Node("cat", Concat(), ("sum", "relu")),
        Node("pool", MaxPool((2, 3), (2, 2)), ("cat",)),
        Node("drop", Dropout(0.5), ("pool",)),
        Node("flat", Flatten(), ("drop",)),
        Node("fc", Dense(5, bias=False), ("flat",)),
        Node("softmax", Softmax(), ("fc",)),
    )
)

VOLUMES = Architecture(
    (
        Node("in", InputArray((8, 6, 4, 2))),
        Node("conv", Conv(4, (3, 2, 1), (2, 1, 1), dilation=(1, 1, 1), bias=True), ("in",)),
        Node("lrelu", LeakyReLU(0.2), ("conv",)),
        Node("max", MaxPool((2, 2, 2), (2, 2, 2)), ("lrelu",)),
        Node("up", ConvTranspose(3, (5, 4, 3), (2, 2, 2), bias=True), ("max",)),
        Node("mean", AveragePool((2, 1, 1), (2, 1, 1), "valid"), ("up",)),
        Node("all", GlobalAveragePool(), ("mean",)),
        Node("tanh", Tanh(), ("all",)),
        Node("scale", Scale(1.5), ("tanh",)),
    )
)
PYRAMID = Architecture(
    (
        Node("in", Input(8, 12, 3)),
        Node("half", ConvTranspose(4, (3, 2), (2, 2)), ("in",)),
        Node("mean", AveragePool((4, 4), (4, 4)), ("half",)),
        Node("larger", Upsample((4, 4)), ("mean",)),
        Node("sum", Add(), ("half", "larger")),
        Node("rpn2", Conv(5, bias=True), ("sum",)),
        Node("two", Sigmoid(), ("rpn2",)),
        Node("rpn3", Conv(5, bias=True), ("mean",), shares="rpn2"),
        Node("three", Reshape((24, 5)), ("rpn3",)),
    ),
    heads=("two", "mean"),
)
"""A convolution that two levels share, and three outputs."""


@pytest.mark.parametrize("network", [EVERYTHING, VOLUMES, PYRAMID], ids=["images", "volumes", "pyramid"])
def test_every_layer_type_builds_as_counted_and_reads_back(network: Architecture) -> None:
    model = build_model(network)
    check_model(model, network)
    assert model.count_params() == network.parameter_count
    assert architecture_of(model, network) == network


def test_a_shared_layer_that_is_built_twice_is_named() -> None:
    apart = Architecture(tuple(Node(n.name, n.layer, n.inputs) for n in PYRAMID.nodes), PYRAMID.heads)
    with pytest.raises(TrialFailedError, match="layer 'rpn3' is counted but not in the built model"):
        check_model(build_model(apart), PYRAMID)
    with pytest.raises(TrialFailedError, match="layer 'rpn3' is counted but not in the built model"):
        check_model(build_model(PYRAMID), apart)


def test_outputs_in_another_order_are_named() -> None:
    turned = Architecture(PYRAMID.nodes, ("mean", "two"))
    with pytest.raises(TrialFailedError, match="the built model's output is that of mean, two, three"):
        architecture_of(build_model(turned), PYRAMID)


def test_resnet50_and_a_grown_one_build_as_counted() -> None:
    grown = Deepen("s4b2_relu").apply(Deepen("relu1").apply(resnet(50, 32, 10)))
    model = build_model(grown)
    check_model(model, grown)
    assert model.count_params() == grown.parameter_count
    assert architecture_of(model, grown).hash == grown.hash


def changed(name: str, layer: Layer) -> Architecture:
    return Architecture(tuple(Node(n.name, layer if n.name == name else n.layer, n.inputs) for n in EVERYTHING.nodes))


@pytest.mark.parametrize(
    "built",
    [
        changed("drop", Dropout(0.1)),
        changed("pool", MaxPool((1, 3), (2, 2))),
        changed("bn", BatchNorm()),
        changed("relu", Dropout(0.5)),
        changed("grouped", Conv(12, (3, 3), dilation=(1, 1), groups=3)),
        Architecture(
            tuple(Node(n.name, n.layer, ("relu", "sum") if n.name == "cat" else n.inputs) for n in EVERYTHING.nodes)
        ),
    ],
)
def test_a_model_that_computes_something_else_from_the_same_weights_has_another_hash(built: Architecture) -> None:
    model = build_model(built)
    check_model(model, EVERYTHING)
    assert architecture_of(model, EVERYTHING).hash == built.hash != EVERYTHING.hash


@pytest.mark.parametrize(
    ("layer", "attribute", "value", "match"),
    [
        ("conv", "trainable", False, "layer 'conv' is not trained"),
        ("bn", "momentum", 0.99, r"layer 'bn' \(BatchNormalization\): momentum 0.99"),
        ("fc", "activation", keras.activations.relu, r"layer 'fc' \(Dense\): it has an activation"),
    ],
)
def test_a_layer_that_no_architecture_has_is_named(layer: str, attribute: str, value: object, match: str) -> None:
    model = build_model(EVERYTHING)
    setattr(model.get_layer(layer), attribute, value)
    with pytest.raises(TrialFailedError, match=match):
        architecture_of(model, EVERYTHING)


def test_compute_types_are_those_of_the_layers_with_kernels() -> None:
    model = build_model(EVERYTHING)
    assert compute_types(model) == {"float32": 4}
    for name in ("conv", "grouped"):
        model.get_layer(name).dtype_policy = keras.DTypePolicy("mixed_bfloat16")
    assert compute_types(model) == {"bfloat16": 2, "float32": 2}


def test_residual_blocks_start_as_the_identity() -> None:
    model = build_model(resnet(50, 32, 10))
    assert float(keras.ops.max(keras.ops.abs(model.get_layer("s2b1_cbn").gamma))) == 0.0
    assert float(keras.ops.min(model.get_layer("s2b1_bbn").gamma)) == 1.0


def with_kernel(size: int) -> Architecture:
    nodes = [Node("in", Input(8, 8, 3)), Node("a", Conv(4, (size, size)), ("in",)), Node("b", ReLU(), ("a",))]
    return Architecture(tuple(nodes))


def test_a_kernel_that_is_counted_but_not_built_fails_the_trial() -> None:
    with pytest.raises(
        TrialFailedError, match=r"mismatch: layer 'a': counted weights \[\(5, 5, 3, 4\)\], built .*3, 3"
    ):
        check_model(build_model(with_kernel(3)), with_kernel(5))


def test_missing_and_additional_layers_fail_the_trial() -> None:
    short = Architecture(with_kernel(3).nodes[:2])
    with pytest.raises(TrialFailedError, match="'b' is counted but not in the built model"):
        check_model(build_model(short), with_kernel(3))
    with pytest.raises(TrialFailedError, match="layers that are not counted: b"):
        check_model(build_model(with_kernel(3)), short)


def test_an_output_of_another_size_fails_the_trial() -> None:
    strided = Architecture((Node("in", Input(8, 8, 3)), Node("a", MaxPool((2, 2), (1, 1)), ("in",))))
    counted = Architecture((Node("in", Input(8, 8, 3)), Node("a", MaxPool((2, 2), (2, 2)), ("in",))))
    with pytest.raises(TrialFailedError, match=r"layer 'a': counted output \(4, 4, 3\), built output \(8, 8, 3\)"):
        check_model(build_model(strided), counted)


def test_what_keras_cannot_build_fails_the_trial_naming_the_layer() -> None:
    impossible = Architecture(
        (Node("in", Input(8, 8, 3)), Node("both", Conv(4, stride=(2, 2), dilation=(2, 2)), ("in",)))
    )
    with pytest.raises(TrialFailedError, match=r"build: layer 'both' \(conv\): "):
        build_model(impossible)


def test_what_a_user_s_keras_json_has_set_reaches_no_training() -> None:
    keras.config.set_image_data_format("channels_first")
    keras.config.set_floatx("float16")
    keras.config.set_epsilon(1e-3)
    set_up("float32", seed=1)
    found = keras.config.image_data_format(), keras.config.floatx(), keras.config.epsilon()
    assert found == ("channels_last", "float32", 1e-7)
