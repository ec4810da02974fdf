"""A child computes what its parent computes, in inference mode, in real Keras models."""

import random
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiperf.errors import TrialFailedError
from aiperf.network.architecture import Architecture, Node
from aiperf.network.json_files import to_json
from aiperf.network.layers import Add, BatchNorm, Conv, Dense, GlobalAveragePool, Input, MaxPool, ReLU
from aiperf.network.operations import count
from aiperf.wire.messages import InheritedWeights
from replica.measure.counting.keras_operations import count_model
from replica.trainer.model.builder import build_model, check_model
from replica.trainer.model.weights import inherited, load, read_model, save, write_model
from search_space.inheritance import Weights, inherit
from search_space.morphisms import AddSkip, Deepen, EnlargeKernel, Morph, Widen, morph_data
from search_space.resnet import resnet
from search_space.sampling import random_morph
from tests.support.fuzz import examples


def small_network() -> Architecture:
    """A residual network of odd sizes without softmax, so that small differences show."""
    return Architecture(
        (
            Node("in", Input(13, 10, 3)),
            Node("stem", Conv(8, (3, 3), (2, 2)), ("in",)),
            Node("stem_bn", BatchNorm(), ("stem",)),
            Node("stem_relu", ReLU(), ("stem_bn",)),
            Node("a", Conv(8, (1, 1)), ("stem_relu",)),
            Node("a_bn", BatchNorm(), ("a",)),
            Node("a_relu", ReLU(), ("a_bn",)),
            Node("b", Conv(8, (3, 3), bias=True), ("a_relu",)),
            Node("b_bn", BatchNorm(), ("b",)),
            Node("sum", Add(), ("stem_relu", "b_bn")),
            Node("sum_relu", ReLU(), ("sum",)),
            Node("pool", MaxPool((3, 3), (2, 2)), ("sum_relu",)),
            Node("c", Conv(16, (2, 2), (1, 2)), ("pool",)),
            Node("c_bn", BatchNorm(), ("c",)),
            Node("c_relu", ReLU(), ("c_bn",)),
            Node("gap", GlobalAveragePool(), ("c_relu",)),
            Node("fc", Dense(5), ("gap",)),
        )
    )


def trained_weights(architecture: Architecture, rng: np.random.Generator) -> Weights:
    """Weights as after a training: no scale is 0 or 1, no moving statistic is fresh."""

    def draw(name: str, shape: tuple[int, ...]) -> Any:
        if name == "kernel":
            return rng.normal(0, np.sqrt(2 / np.prod(shape[:-1])), shape).astype(np.float32)
        if name in ("gamma", "moving_variance"):
            return rng.uniform(0.5, 2.0, shape).astype(np.float32)
        return rng.normal(0, 0.3, shape).astype(np.float32)

    return {
        node.name: {name: draw(name, shape) for name, shape in architecture.weight_shapes(node).items()}
        for node in architecture.nodes
        if architecture.weight_shapes(node)
    }


def outputs(architecture: Architecture, weights: Weights, images: Any, training: bool = False) -> Any:
    model = build_model(architecture)
    check_model(model, architecture)
    write_model(model, weights)
    last = next(n.name for n in reversed(architecture.nodes) if n.layer.kind == "dense")
    head = keras.Model(model.inputs, model.get_layer(last).output)
    return head([images], training=training).numpy()


def assert_preserved(architecture: Architecture, morphs: list[Morph], seed: int, noise: float = 0.0) -> None:
    rng = np.random.default_rng(seed)
    weights = trained_weights(architecture, rng)
    images = rng.normal(size=(3, *architecture.input_shape)).astype(np.float32)
    before = outputs(architecture, weights, images)
    for morph in morphs:
        weights = inherit(architecture, morph, weights, rng, noise)
        architecture = morph.apply(architecture)
    after = outputs(architecture, weights, images)
    assert np.abs(after - before).max() < 1e-4 * np.abs(before).max()


@pytest.mark.parametrize("noise", [0.0, 0.2])
@pytest.mark.parametrize(
    "morph",
    [
        Deepen("a_relu"),
        Deepen("sum_relu"),
        Widen("stem", 11),
        Widen("a", 16),
        Widen("c", 24),
        AddSkip("a_relu", "sum_relu"),
        AddSkip("a_relu", "c_relu"),
        EnlargeKernel("stem"),
        EnlargeKernel("a"),
        EnlargeKernel("b"),
        EnlargeKernel("c"),
    ],
)
def test_every_operator_preserves_the_function(morph: Morph, noise: float) -> None:
    assert_preserved(small_network(), [morph], seed=3, noise=noise)


def chain(architecture: Architecture, length: int, seed: int) -> list[Morph]:
    rng, morphs = random.Random(seed), []
    for _ in range(length):
        morph, architecture = random_morph(architecture, rng)
        morphs.append(morph)
    return morphs


@settings(max_examples=examples(20))
@given(st.integers(0, 10**6))
def test_chains_of_ten_morphs_preserve_the_function(seed: int) -> None:
    network = small_network()
    assert_preserved(network, chain(network, 10, seed), seed, noise=0.1)


@pytest.mark.parametrize("seed", [1, 2])
def test_chains_of_ten_morphs_of_resnet50_preserve_the_function(seed: int) -> None:
    network = resnet(50, 32, 10)
    assert_preserved(network, chain(network, 10, seed), seed, noise=0.1)


@settings(max_examples=examples(60))
@given(st.integers(0, 10**6))
def test_what_is_built_is_what_is_counted_for_any_chain(seed: int) -> None:
    network = small_network()
    for morph in chain(network, 5, seed):
        network = morph.apply(network)
    model = build_model(network)
    check_model(model, network)
    assert count_model(model).operations == count(network).operations
    assert model.count_params() == network.parameter_count


def test_noise_makes_copies_of_a_channel_learn_apart() -> None:
    network, rng = small_network(), np.random.default_rng(0)
    weights = trained_weights(network, rng)
    for noise, same in ((0.0, True), (0.2, False)):
        kernel = inherit(network, Widen("a", 16), weights, np.random.default_rng(1), noise)["b"]["kernel"]
        original = weights["b"]["kernel"]
        ratios = [kernel[..., new, :].sum() / original[..., old, :].sum() for old in range(8) for new in (old,)]
        copies = [ratio for ratio in ratios if ratio < 0.99]
        assert copies
        assert all(np.isclose(1 / ratio, round(1 / ratio), rtol=1e-3) for ratio in copies) == same


def test_a_child_of_inherited_weights_can_train(tmp_path: Path) -> None:
    parent, rng = small_network(), np.random.default_rng(0)
    morph = AddSkip("a_relu", "sum_relu")
    weights = inherit(parent, morph, trained_weights(parent, rng), rng)
    model = build_model(morph.apply(parent))
    write_model(model, weights)
    model.compile(keras.optimizers.SGD(0.1), "mse")
    before = model.get_layer("skip1_bn").gamma.numpy().copy()
    model.fit(rng.normal(size=(8, 13, 10, 3)), rng.normal(size=(8, 5)), verbose=0)
    assert np.any(model.get_layer("skip1_bn").gamma.numpy() != before), "a zero scale must not be a dead end"


@pytest.fixture
def request_on_disk(tmp_path: Path) -> tuple[InheritedWeights, Architecture, Architecture]:
    parent = small_network()
    morph = Deepen("a_relu")
    (tmp_path / "parent.json").write_text(to_json(parent))
    save(tmp_path / "weights.npz", trained_weights(parent, np.random.default_rng(2)))
    request = InheritedWeights(
        architecture_path=str(tmp_path / "parent.json"),
        weights_path=str(tmp_path / "weights.npz"),
        morphs=(morph_data(morph),),
        noise=0.0,
    )
    return request, parent, morph.apply(parent)


def test_weights_go_through_a_file(
    request_on_disk: tuple[InheritedWeights, Architecture, Architecture], tmp_path: Path
) -> None:
    request, parent, child = request_on_disk
    weights = inherited(request, child, seed=1)
    kept = load(Path(request.weights_path), parent)
    assert np.array_equal(weights["stem"]["kernel"], kept["stem"]["kernel"])
    model = build_model(child)
    write_model(model, weights)
    assert np.array_equal(read_model(model, child)["b"]["bias"], weights["b"]["bias"])
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_damaged_foreign_and_missing_weights_fail_the_trial(
    request_on_disk: tuple[InheritedWeights, Architecture, Architecture],
) -> None:
    request, parent, child = request_on_disk
    with pytest.raises(TrialFailedError, match="weights: the morphs make"):
        inherited(request, parent, seed=1)
    path = Path(request.weights_path)
    content = path.read_bytes()
    for broken in (content[:-200], b"", b"no archive"):
        path.write_bytes(broken)
        with pytest.raises(TrialFailedError, match=r"weights: .*weights\.npz cannot be read"):
            inherited(request, child, seed=1)
    save(path, trained_weights(Widen("a", 16).apply(parent), np.random.default_rng(0)))
    with pytest.raises(TrialFailedError, match="has shape"):
        inherited(request, child, seed=1)
    path.unlink()
    with pytest.raises(TrialFailedError, match="cannot be read"):
        inherited(request, child, seed=1)
