"""The recipe by hand: initialisation, normalisation, loss, updates and learning rate in NumPy."""

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from aiperf.clock import SystemClock
from aiperf.errors import TrialFailedError
from aiperf.network.architecture import Architecture, Node
from aiperf.network.json_files import to_json
from aiperf.network.layers import BatchNorm, Conv, Dense, Flatten, GlobalAveragePool, Input, Softmax
from aiperf.wire.messages import ArchitectureRequest
from replica.trainer.collectives.alone import AloneCollective
from replica.trainer.framework import CompiledSteps
from replica.trainer.frameworks import FRAMEWORKS
from replica.trainer.model import builder
from replica.trainer.model.optimisers import build_optimiser
from replica.trainer.ready import ReadyTraining
from tests.support.trainings.requests import request_for
from workloads.classification import CLASSIFICATION

SIDE, CLASSES, STEPS_PER_EPOCH = 4, 3, 3
LEARNING_RATE, MOMENTUM, LABEL_SMOOTHING, MAX_EPOCHS = 0.5, 0.9, 0.1, 2

LINEAR = Architecture(
    (
        Node("in", Input(SIDE, SIDE, 3)),
        Node("flat", Flatten(), ("in",)),
        Node("fc", Dense(CLASSES), ("flat",)),
        Node("softmax", Softmax(), ("fc",)),
    )
)
"""Softmax regression, whose gradient is short enough to write down."""

Floats = NDArray[np.float64]


def compiled(name: str) -> tuple[CompiledSteps, Any]:
    request = request_for(
        "digits", learning_rate=LEARNING_RATE, momentum=MOMENTUM, label_smoothing=LABEL_SMOOTHING, max_epochs=MAX_EPOCHS
    )
    builder.set_up("float32", seed=1)
    model = builder.build_model(LINEAR)
    optimiser = build_optimiser(model, request)
    return FRAMEWORKS.load(name)().compile(model, optimiser, CLASSIFICATION, AloneCollective(), request), model


def array_of(steps: CompiledSteps, model: Any, name: str) -> Any:
    """A copy of a weight of the only trained layer; Keras's variable may be an older one."""
    wanted = getattr(model.get_layer("fc"), name)
    (place,) = (number for number, weight in enumerate(model.weights) if weight is wanted)
    return steps.weights()[place].copy()


def batch(seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    labels = np.eye(CLASSES, dtype=np.float32)[rng.integers(CLASSES, size=8)]
    return rng.normal(size=(8, SIDE, SIDE, 3)).astype(np.float32), labels


def smoothed_loss(weights: list[Floats], images: Floats, labels: Floats) -> tuple[float, Floats, Floats]:
    """The sum of smoothed cross-entropies, and the gradients of their mean."""
    kernel, bias = weights
    rows = images.reshape(len(images), -1)
    powers = np.exp(rows @ kernel + bias)
    outputs = powers / powers.sum(axis=1, keepdims=True)
    wanted = labels * (1 - LABEL_SMOOTHING) + LABEL_SMOOTHING / CLASSES
    error = (outputs - wanted) / len(rows)
    return float(-(wanted * np.log(outputs)).sum()), rows.T @ error, error.sum(axis=0)


def rate_at(step: int) -> float:
    return max(0.0, LEARNING_RATE * (1 - step / (MAX_EPOCHS * STEPS_PER_EPOCH)))


@pytest.mark.parametrize("trains_on", list(FRAMEWORKS))
def test_updates_are_those_of_smoothed_cross_entropy_and_momentum(trains_on: str) -> None:
    steps, model = compiled(trains_on)
    values = [np.asarray(value, np.float64) for value in model.get_weights()]
    velocity = [np.zeros_like(value) for value in values]
    for step in range(MAX_EPOCHS * STEPS_PER_EPOCH):
        steps.set_learning_rate(rate_at(step))
        images, labels = batch(step)
        loss, *gradients = smoothed_loss(values, images.astype(np.float64), labels.astype(np.float64))
        velocity = [MOMENTUM * v - rate_at(step) * g for v, g in zip(velocity, gradients, strict=True)]
        values = [value + v for value, v in zip(values, velocity, strict=True)]
        norm = np.sqrt(sum(np.sum(gradient**2) for gradient in gradients))
        np.testing.assert_allclose(steps.read([steps.train(images, labels)]), [[loss, 8, norm]], rtol=1e-5)
        for found, wanted in zip(model.get_weights(), values, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("trains_on", list(FRAMEWORKS))
def test_weights_without_a_gradient_stay_as_they_are(trains_on: str) -> None:
    # Black images have no gradient for the kernel; weight decay would shrink it all the same.
    steps, model = compiled(trains_on)
    before = array_of(steps, model, "kernel")
    for _ in range(3):
        steps.train(np.zeros((8, SIDE, SIDE, 3), np.float32), batch(0)[1])
    np.testing.assert_array_equal(array_of(steps, model, "kernel"), before)
    assert np.any(array_of(steps, model, "bias") != 0), "the bias has learned"


INITIALISED = Architecture(
    (
        Node("in", Input(4, 4, 8)),
        Node("conv", Conv(96), ("in",)),
        Node("pointwise", Conv(160, (1, 1), bias=True), ("conv",)),
        Node("grouped", Conv(64, (3, 3), groups=4), ("pointwise",)),
        Node("depthwise", Conv(832, (3, 3), groups=64), ("grouped",)),
        Node("gap", GlobalAveragePool(), ("depthwise",)),
        Node("fc", Dense(200), ("gap",)),
    )
)
FAN_IN = {"conv": 9 * 8, "pointwise": 96, "grouped": 9 * 40, "depthwise": 9, "fc": 832}
"""Inputs of one output: the kernel's area times the channels that it reads."""


@pytest.mark.parametrize("layer", list(FAN_IN))
def test_kernels_start_with_the_variance_of_he_et_al(layer: str) -> None:
    builder.set_up("float32", seed=1)
    built = builder.build_model(INITIALISED).get_layer(layer)
    kernel = built.kernel.numpy()
    wanted = 2 / FAN_IN[layer]
    # At least 6,912 draws: the variance of a truncated normal sample is within 2 % (1 sigma).
    assert kernel.size >= 6912
    assert kernel.var() == pytest.approx(wanted, rel=0.08)
    assert abs(kernel.mean()) < 0.05 * np.sqrt(wanted)
    assert np.abs(kernel).max() > 2 * np.sqrt(wanted), "normal, not uniform"
    assert built.bias is None or not built.bias.numpy().any()


def test_batch_normalisation_keeps_nine_tenths_and_divides_by_what_is_at_least_epsilon() -> None:
    model = builder.build_model(Architecture((Node("in", Input(4, 4, 2)), Node("bn", BatchNorm(), ("in",)))))
    layer = model.get_layer("bn")
    images = np.random.default_rng(2).normal(3.0, 2.0, size=(16, 4, 4, 2)).astype(np.float32)
    model(images, training=True)
    np.testing.assert_allclose(layer.moving_mean.numpy(), 0.1 * images.mean(axis=(0, 1, 2)), rtol=1e-4)
    np.testing.assert_allclose(layer.moving_variance.numpy(), 0.9 + 0.1 * images.var(axis=(0, 1, 2)), rtol=1e-4)
    layer.set_weights([np.ones(2), np.zeros(2), np.zeros(2), np.zeros(2)])  # scale, shift, mean, variance
    np.testing.assert_allclose(model(images, training=False).numpy(), images / np.sqrt(1e-5), rtol=1e-4)


@pytest.mark.parametrize("trains_on", ["tensorflow", "jax"])
@pytest.mark.parametrize("examples", [(16, 4, 4), (1, 1, 1)])
def test_fused_normalisation_is_that_of_keras(trains_on: str, examples: tuple[int, int, int]) -> None:
    fuse_normalisation = import_module(f"replica.trainer.frameworks.{trains_on}.steps").fuse_normalisation
    batch, height, width = examples
    images = np.random.default_rng(3).normal(3.0, 2.0, size=(batch, height, width, 2)).astype(np.float32)
    network = Architecture((Node("in", Input(height, width, 2)), Node("bn", BatchNorm(), ("in",))))
    keras_own, fused = builder.build_model(network), builder.build_model(network)
    fuse_normalisation(fused)
    assert fused.get_layer("bn").call.func.__name__ == "_normalise"
    for training in (True, False):
        np.testing.assert_allclose(fused(images, training=training), keras_own(images, training=training), atol=1e-5)
    for mine, other in zip(fused.get_weights(), keras_own.get_weights(), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5)


def trained_request(folder: Path) -> ArchitectureRequest:
    digits = Architecture(
        (
            Node("in", Input(32, 32, 3)),
            Node("conv", Conv(2, stride=(8, 8)), ("in",)),
            Node("flat", Flatten(), ("conv",)),
            Node("fc", Dense(10), ("flat",)),
            Node("softmax", Softmax(), ("fc",)),
        )
    )
    path = folder / "architecture.json"
    path.write_text(to_json(digits))
    return request_for("digits", architecture_path=str(path))


@pytest.mark.parametrize("trains_on", list(FRAMEWORKS))
def test_a_model_that_is_not_the_counted_one_fails_the_trial(
    trains_on: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = builder.build_model

    def smaller(architecture: Architecture) -> Any:
        """Build 1x1 kernels instead of the counted ones."""
        nodes = (
            Node(n.name, Conv(n.layer.filters, (1, 1), n.layer.stride), n.inputs) if isinstance(n.layer, Conv) else n
            for n in architecture.nodes
        )
        return build(Architecture(tuple(nodes)))

    monkeypatch.setattr(builder, "build_model", smaller)
    framework = FRAMEWORKS.load(trains_on)()
    with pytest.raises(TrialFailedError, match=r"mismatch: layer 'conv': counted weights .*built weights .*1, 1"):
        ReadyTraining(framework, CLASSIFICATION, trained_request(tmp_path), framework.open_collective(1), SystemClock())
