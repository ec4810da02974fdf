"""The native pass of PyTorch is that of Keras's layers, and AIPerf's networks get no other."""

from dataclasses import replace
from typing import Any

import keras
import numpy as np
import pytest

from aiperf.network.architecture import Architecture, Node
from aiperf.network.layers import (
    Add,
    AveragePool,
    BatchNorm,
    Concat,
    Conv,
    Dense,
    Dropout,
    Flatten,
    GlobalAveragePool,
    Input,
    MaxPool,
    ReLU,
    Softmax,
    ZeroPad,
)
from replica.trainer.collectives.alone import AloneCollective
from replica.trainer.model.builder import build_model, set_up
from replica.trainer.model.optimisers import build_optimiser
from search_space.morphisms import AddSkip, Deepen, EnlargeKernel, Widen
from search_space.resnet import resnet
from tests.support.trainings.requests import request_for
from workloads.classification import CLASSIFICATION

ON_TORCH = pytest.mark.parametrize("trains_on", ["torch"])

BRANCHES = Architecture(
    (
        Node("in", Input(15, 12, 3)),
        Node("pad", ZeroPad((1, 2), (0, 3)), ("in",)),
        Node("conv", Conv(6, (3, 5), (2, 1), "valid", bias=True), ("pad",)),
        Node("bn", BatchNorm(), ("conv",)),
        Node("relu", ReLU(), ("bn",)),
        Node("even", ZeroPad((1, 1), (2, 2)), ("relu",)),
        Node("folded", Conv(12, (3, 5), padding="valid"), ("even",)),
        Node("depthwise", Conv(12, (3, 3), groups=6, bias=True), ("relu",)),
        Node("grouped", Conv(12, (3, 3), dilation=(2, 2), groups=3), ("relu",)),
        Node("sum", Add(), ("depthwise", "grouped", "folded")),
        Node("sum_relu", ReLU(), ("sum",)),
        Node("shared", Add(), ("folded", "sum_relu")),
        Node("cat", Concat(), ("shared", "relu")),
        Node("pool", MaxPool((2, 3), (2, 2)), ("cat",)),
        Node("wide", MaxPool((3, 3), (1, 1)), ("pool",)),
        Node("drop", Dropout(0.0), ("wide",)),
        Node("flat", Flatten(), ("drop",)),
        Node("hidden", Dense(7), ("flat",)),
        Node("hidden_bn", BatchNorm(), ("hidden",)),
        Node("fc", Dense(5, bias=False), ("hidden_bn",)),
        Node("softmax", Softmax(), ("fc",)),
    )
)


def kernels() -> Architecture:
    """Convolutions with every kernel that the search sets, at both strides, in turn."""
    nodes, last = [Node("in", Input(32, 32, 3))], "in"
    for side in (1, 2, 3, 4, 5, 6, 7):
        stride = 2 if side in (3, 6, 7) else 1
        nodes += [
            Node(f"conv{side}", Conv(8, (side, side), (stride, stride), bias=side % 2 == 0), (last,)),
            Node(f"bn{side}", BatchNorm(), (f"conv{side}",)),
            Node(f"relu{side}", ReLU(), (f"bn{side}",)),
        ]
        last = f"relu{side}"
    tail = (Node("gap", GlobalAveragePool(), (last,)), Node("fc", Dense(4), ("gap",)), Node("soft", Softmax(), ("fc",)))
    return Architecture((*nodes, *tail))


def grown() -> Architecture:
    """The kernels' network after each of the morphs."""
    network: Any = kernels()
    for morph in (Deepen("relu3"), EnlargeKernel("conv3"), AddSkip("relu1", "relu5"), AddSkip("relu4", "relu5")):
        network = morph.apply(network)
    return Widen("conv4", 16).apply(network)


NETWORKS = {"branches": BRANCHES, "kernels": kernels(), "grown": grown()}


def built(architecture: Architecture, precision: str = "float32") -> Any:
    """The model with weights and statistics that are all drawn at random."""
    set_up(precision, seed=1)
    model, rng = build_model(architecture), np.random.default_rng(1)
    for variable in model.weights:
        noise = rng.normal(size=variable.shape) * (0.1 if len(variable.shape) > 1 else 0.3)
        variable.assign(noise if len(variable.shape) > 1 or "moving_mean" in variable.path else 1 + np.abs(noise))
    return model


def passed(network: Any, model: Any, images: Any) -> dict[str, Any]:
    """Outputs, gradients and statistics after a training pass, and outputs of an evaluation."""
    import torch

    images = torch.as_tensor(images).requires_grad_()
    outputs = network(images, training=True)
    drawn = np.random.default_rng(2).normal(size=tuple(outputs.shape)).astype(np.float32)
    trained = model.trainable_variables
    leaves = [images, *network.parameters.leaves(trained)]
    own, *found = torch.autograd.grad((outputs * torch.as_tensor(drawn)).sum(), leaves)
    gradients = network.parameters.gradients(found, trained)
    layouts = map(network.parameters.layout, trained)
    with torch.no_grad():
        evaluated = network(images, training=False)
    return {
        "outputs": outputs,
        "evaluated": evaluated,
        "images": own,
        **{each.path: layout.original(value) for each, layout, value in zip(trained, layouts, gradients, strict=True)},
        **{each.path: each.value.clone() for each in model.non_trainable_weights},
    }


@ON_TORCH
@pytest.mark.parametrize(
    ("name", "precision", "error"),
    # Either pass in bfloat16 differs as much from that in float32.
    [*((name, "float32", 1e-4) for name in NETWORKS), ("branches", "mixed_bfloat16", 0.25)],
)
def test_the_native_pass_is_that_of_kerass_layers(trains_on: str, name: str, precision: str, error: float) -> None:
    from replica.trainer.frameworks.torch.network import KerasNetwork, Network

    model = built(NETWORKS[name], precision)
    images = np.random.default_rng(3).normal(size=(16, *model.input_shape[1:])).astype(np.float32)
    weights = model.get_weights()
    wanted = passed(KerasNetwork(model), model, images)
    model.set_weights(weights)
    found = passed(Network(model), model, images)
    assert found.keys() == wanted.keys()
    for part, expected in wanted.items():
        own, value = found[part].detach().float(), expected.detach().float()
        assert own.shape == value.shape, part
        # A bias in front of a normalisation has no gradient but rounding.
        scale = max(float(value.norm()), 1.0 if part.endswith("bias") else 1e-6)
        assert float((own - value).norm()) <= error * scale, part


@ON_TORCH
def test_the_networks_of_the_benchmark_are_computed_natively(trains_on: str) -> None:
    from replica.trainer.frameworks.torch.network import KerasNetwork, Network, network_of

    set_up("float32", seed=1)
    for architecture in (resnet(50, 32, 10), *NETWORKS.values()):
        model = build_model(architecture)
        network = network_of(model)
        assert type(network) is Network
        for variable in model.trainable_variables:
            (leaf,) = network.parameters.leaves([variable])
            assert leaf.data_ptr() == variable.value.data_ptr(), f"{variable.path} is copied"
            assert network.parameters.layout(variable).memory(variable.value).is_contiguous(), variable.path
    pooled = Architecture(
        tuple(
            replace(node, layer=AveragePool((2, 2), (2, 2))) if node.name == "pool" else node for node in BRANCHES.nodes
        )
    )
    assert type(network_of(build_model(pooled))) is KerasNetwork


@ON_TORCH
def test_the_fused_descent_is_kerass(trains_on: str) -> None:
    import torch

    from replica.trainer.frameworks.torch.descent import FusedDescent, KerasDescent, descend
    from replica.trainer.frameworks.torch.network import Network

    request, rng = request_for("digits", learning_rate=0.5), np.random.default_rng(4)
    after = []
    model = built(BRANCHES)
    weights, variables = model.get_weights(), model.trainable_variables
    draws = [[rng.normal(size=variable.shape) for variable in variables] for _ in range(4)]
    for kind in (KerasDescent, FusedDescent):
        model.set_weights(weights)
        parameters = Network(model).parameters
        optimiser = build_optimiser(model, request)
        assert type(descend(optimiser, variables, parameters)) is FusedDescent
        own = kind(optimiser, variables, parameters)
        for number, draw in enumerate(draws):
            own.set_rate(0.5 - 0.1 * number)
            layouts = map(parameters.layout, variables)
            own.apply(
                [
                    layout.memory(torch.as_tensor(g, dtype=torch.float32)).contiguous()
                    for layout, g in zip(layouts, draw, strict=True)
                ],
                variables,
            )
        slots = (*variables, *optimiser.variables[2:])  # behind the number of updates, and the rate
        after.append([keras.ops.convert_to_numpy(each).copy() for each in slots])
        assert int(optimiser.iterations) == 4
    for keras_own, fused_own in zip(*after, strict=True):
        np.testing.assert_allclose(fused_own, keras_own, rtol=1e-5, atol=1e-6)


@ON_TORCH
def test_a_network_by_kerass_layers_trains_as_well(trains_on: str) -> None:
    from replica.trainer.frameworks.torch.steps import TorchSteps

    pool, soft = AveragePool((8, 8), (8, 8)), Node("soft", Softmax(), ("fc",))
    layers = (
        Node("in", Input(8, 8, 3)),
        Node("conv", Conv(4), ("in",)),
        Node("pool", pool, ("conv",)),
        Node("flat", Flatten(), ("pool",)),
        Node("fc", Dense(3), ("flat",)),
        soft,
    )
    request, model = request_for("digits"), built(Architecture(layers))
    steps = TorchSteps(model, build_optimiser(model, request), CLASSIFICATION, AloneCollective(), request)
    classes = np.arange(6) % 3
    images, labels = np.ones((6, 8, 8, 3), np.float32) * classes[:, None, None, None], np.eye(3)[classes]
    losses = steps.read([steps.train(images, labels) for _ in range(30)])[:, 0]
    assert losses[-1] < losses[0] / 2
