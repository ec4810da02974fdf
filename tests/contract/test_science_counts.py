"""Rule set science-1: golden counts of the scientific networks, two ways, and XLA's."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import keras
import pytest

from aiperf.errors import UncountedLayerError
from aiperf.network.architecture import Architecture, Node
from aiperf.network.json_files import from_json, to_json
from aiperf.network.layers import (
    AveragePool,
    Conv,
    ConvTranspose,
    Dense,
    GlobalAveragePool,
    InputArray,
    Layer,
    LeakyReLU,
    MaxPool,
    ReLU,
    Reshape,
    Scale,
    Sigmoid,
    Tanh,
)
from aiperf.network.operations import AIPERF_1, LayerFacts, Operations, count
from aiperf.network.padding import padding_operations
from aiperf.network.science import SCIENCE_1, Passes, training_operations
from replica.measure.counting.keras_operations import count_model
from replica.measure.counting.profilers import xla
from replica.trainer.model.builder import build_model, check_model
from replica.trainer.model.built import architecture_of
from tests.support.folders import GOLDEN
from workloads.networks import NETWORKS, REHEARSAL
from workloads.science.generation import DCGAN_COS
from workloads.science.weather import FRCNN_EWA

COUNTS = json.loads((GOLDEN / "science.json").read_text())
ACTIVATIONS = ("relu", "sigmoid", "tanh", "softmax")
"""They count with the convolution or dense layer that they follow, as in the golden file."""


def lines(architecture: Architecture) -> Counter[tuple[Any, ...]]:
    """Output, forward and backward of every layer that counts."""
    found: dict[str, list[Any]] = {}
    for node, layer in zip(architecture.nodes, count(architecture, SCIENCE_1).layers, strict=True):
        source = architecture.by_name.get(node.inputs[0]) if node.inputs else None
        if layer.kind in ACTIVATIONS and source and source.layer.has_kernel:
            found[source.name][1] += layer.operations.forward
        elif layer.operations.forward:
            shape = architecture.shapes[node.name]
            found[node.name] = [shape, layer.operations.forward, layer.operations.backward]
    return Counter(map(tuple, found.values()))


@pytest.mark.parametrize("name", NETWORKS)
def test_every_scientific_network_is_the_golden_one_layer_by_layer(name: str) -> None:
    network, golden = NETWORKS[name](), COUNTS[name]
    wanted = Counter(
        (tuple(layer["output"]), layer["forward"], layer["backward"]) for layer in golden["layers"] if layer["forward"]
    )
    assert lines(network) == wanted
    counted = count(network, SCIENCE_1)
    assert counted.operations == Operations(golden["forward"], golden["backward"])
    assert (counted.parameters, counted.input_gradient) == (golden["parameters"], golden["input_gradient"])
    assert network.parameter_count == golden["parameters"]
    assert from_json(to_json(network)) == network


@pytest.mark.parametrize("name", NETWORKS)
def test_the_built_model_of_every_network_is_the_golden_one_layer_by_layer(name: str) -> None:
    network, golden = NETWORKS[name](), COUNTS[name]
    model = build_model(network)
    check_model(model, network)
    assert architecture_of(model, network) == network
    counted, built = count(network, SCIENCE_1), count_model(model, SCIENCE_1)
    one, other = (
        Counter((layer.kind, layer.operations, layer.elements) for layer in way.layers if layer.operations.forward)
        for way in (built, counted)
    )
    assert one == other
    assert built.operations == Operations(golden["forward"], golden["backward"])
    assert built.parameters == golden["parameters"] == model.count_params()


def test_an_image_of_a_gan_passes_its_networks_as_often_as_stated() -> None:
    made, judged = (count(NETWORKS[f"dcgan-cos/{part}"](), SCIENCE_1) for part in ("generator", "discriminator"))
    # One pass of the generator, two of the discriminator, and back through it to the generator.
    assert training_operations((Passes(made), Passes(judged, 2, 2, 1))) == 151_188_438_278


@pytest.mark.parametrize("name", REHEARSAL)
def test_every_network_of_a_rehearsal_counts_the_same_in_both_ways(name: str) -> None:
    network = REHEARSAL[name]()
    model = build_model(network)
    check_model(model, network)
    assert architecture_of(model, network) == network
    assert from_json(to_json(network)) == network
    counted, built = count(network, SCIENCE_1), count_model(model, SCIENCE_1)
    assert (built.operations, built.parameters) == (counted.operations, counted.parameters)
    assert built.parameters == model.count_params() > 0


def test_the_passes_of_detection_and_generation_are_the_stated_ones() -> None:
    found, made = FRCNN_EWA.official, DCGAN_COS.official
    assert (found.training_operations(), found.evaluation_operations()) == (1_047_607_604_390, 371_662_140_144)
    assert (made.training_operations(), made.evaluation_operations()) == (151_188_438_278, 15_234_760_704)


def single(layer: Layer, shape: tuple[int, ...], after: tuple[Layer, ...] = ()) -> Architecture:
    nodes = [Node("in", InputArray(shape))]
    for index, following in enumerate((*after, layer)):
        nodes.append(Node(f"n{index}", following, (nodes[-1].name,)))
    return Architecture(tuple(nodes))


@pytest.mark.parametrize(
    ("layer", "shape", "after", "forward", "backward"),
    [
        # Outputs 3 x 3 x 6; behind a ReLU the input has a gradient.
        (
            Conv(8, (3, 5, 1), (2, 1, 1), dilation=(1, 1, 1)),
            (5, 3, 6, 4),
            (ReLU(),),
            2 * 15 * 4 * 54 * 8,
            4 * 15 * 4 * 54 * 8 + 2 * 15 * 4 * 8,
        ),
        (
            Conv(8, (3, 3, 3), (1, 1, 1), dilation=(1, 1, 1)),
            (5, 3, 6, 4),
            (),
            2 * 27 * 4 * 90 * 8,
            2 * 27 * 4 * 90 * 8 + 2 * 27 * 4 * 8,
        ),
        # A transposed convolution counts its inputs, whatever its stride.
        (ConvTranspose(7, (5, 4), (2, 3)), (4, 5, 3), (ReLU(),), 2 * 20 * 21 * 20, 4 * 20 * 21 * 20 + 2 * 20 * 21),
        (ConvTranspose(7, (5, 4, 3), (2, 2, 2)), (4, 5, 6, 3), (), 2 * 60 * 21 * 120, 2 * 60 * 21 * 120 + 2 * 60 * 21),
        (Dense(5), (6, 4), (), 2 * 20 * 6, 4 * 20 * 6 + 2 * 5 * 5),
        (LeakyReLU(0.2), (6, 4), (), 2 * 24, 0),
        (Sigmoid(), (6, 4), (), 13 * 24, 0),
        (Tanh(), (6, 4), (), 15 * 24, 0),
        (Scale(1.2), (4,), (), 4, 0),
        (AveragePool((2, 3), (2, 3)), (4, 6, 5), (), (6 + 4) * 2 * 2 * 5, 0),
        (AveragePool((2, 2, 2), (2, 2, 2)), (4, 4, 4, 5), (), (8 + 4) * 8 * 5, 0),
        (MaxPool((2, 2, 2), (2, 2, 2)), (4, 4, 4, 5), (), 8 * 8 * 5, 0),
        (GlobalAveragePool(), (4, 4, 4, 5), (), 320 + 20, 0),
        (Reshape((4, 2)), (8,), (), 0, 0),
    ],
)
def test_every_rule_by_hand_in_both_ways(
    layer: Layer, shape: tuple[int, ...], after: tuple[Layer, ...], forward: int, backward: int
) -> None:
    network = single(layer, shape, after)
    assert count(network, SCIENCE_1).layers[-1].operations == Operations(forward, backward)
    assert count_model(build_model(network), SCIENCE_1).operations == count(network, SCIENCE_1).operations


def test_roi_align_interpolates_every_sample_of_every_bin() -> None:
    # Faster R-CNN: 512 regions, 7 x 7 bins, 2 x 2 samples, 256 channels.
    facts = LayerFacts(inputs=(), output=(512, 7, 7, 256), window=(2, 2))
    assert SCIENCE_1.count("roialign", facts) == Operations(256_901_120, 0)


def test_aiperf_1_refuses_the_layers_of_science_1() -> None:
    for name in ("cosmoflow", "dcgan-cos/generator", "frcnn-ewa/head-512"):
        with pytest.raises(UncountedLayerError):
            count(NETWORKS[name]())
    with pytest.raises(UncountedLayerError, match=r"conv1 \(Conv3D\).*scale \(Rescaling\)"):
        count_model(build_model(NETWORKS["cosmoflow"]()))
    assert count(NETWORKS["resnet-hep"]()).operations == count(NETWORKS["resnet-hep"](), SCIENCE_1).operations
    assert AIPERF_1.name != SCIENCE_1.name


def test_fused_activations_of_keras_count_like_layers() -> None:
    model = keras.Sequential([keras.Input((4, 4, 2)), keras.layers.Conv2D(3, 3, padding="same", activation="tanh")])
    assert count_model(model, SCIENCE_1).by_kind["tanh"].operations == Operations(15 * 48, 0)
    with pytest.raises(UncountedLayerError, match="activation 'tanh'"):
        count_model(model)


def test_xla_counts_the_discriminator_but_for_padding(tmp_path: Path) -> None:
    network = NETWORKS["dcgan-cos/discriminator"]()
    path = tmp_path / "network.json"
    path.write_text(to_json(network))
    analytical = count(network, SCIENCE_1).operations.forward
    assert xla(path, lowered=True).forward == pytest.approx(analytical - padding_operations(network), rel=1e-3)
