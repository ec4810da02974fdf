"""Two ways to one number: the count of the architecture, and that of its Keras model."""

import random
from pathlib import Path
from typing import Any

import keras
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aiperf.errors import AiperfError, UncountedLayerError, UsageError
from aiperf.network.architecture import Architecture
from aiperf.network.operations import Operations, count
from aiperf.network.science import SCIENCE_1
from benchmarks import keras_applications as benchmark
from replica.measure.counting.keras_operations import count_model
from replica.measure.counting.profilers import tensorflow_forward
from replica.trainer.model.builder import build_model, check_model
from replica.trainer.model.model_files import load_keras_file
from search_space.resnet import resnet
from search_space.sampling import random_morph
from tests.support.architectures import architectures
from tests.support.fuzz import examples


def both(architecture: Architecture) -> None:
    counted, built = count(architecture), count_model(build_model(architecture))
    assert [(layer.name, layer.operations, layer.parameters) for layer in built.layers] == [
        (layer.name, layer.operations, layer.parameters) for layer in sorted(counted.layers, key=order(built))
    ]
    assert built.operations == counted.operations
    assert built.parameters == counted.parameters


def order(built: Any) -> Any:
    places = {layer.name: place for place, layer in enumerate(built.layers)}
    return lambda layer: places[layer.name]


@pytest.mark.parametrize("depth", [50, 101, 152])
def test_resnets_agree(depth: int) -> None:
    both(resnet(depth, 64, 10))


@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.too_slow])
@given(architectures())
def test_random_architectures_agree(architecture: Architecture) -> None:
    both(architecture)
    check_model(build_model(architecture), architecture)


@settings(max_examples=examples(4))
@given(st.data())
def test_grown_resnets_agree(data: st.DataObject) -> None:
    grown = resnet(50, 32, 10)
    for _ in range(data.draw(st.integers(1, 4))):
        _, grown = random_morph(grown, random.Random(data.draw(st.integers(0, 10**6))))
    both(grown)


@pytest.mark.parametrize("depth", [50, 101, 152])
def test_keras_own_resnets_count_like_ours(depth: int) -> None:
    # Theirs pad with a layer of its own and have biases: neither counts forward or backward.
    theirs = getattr(keras.applications, f"ResNet{depth}")(weights=None, input_shape=(64, 64, 3), classes=10)
    assert count_model(theirs).operations == count(resnet(depth, 64, 10)).operations
    assert count_model(theirs).parameters == theirs.count_params()


@pytest.mark.parametrize("name", ["VGG16", "ResNet50"])
def test_models_from_file_count_like_models_in_memory(name: str, tmp_path: Path) -> None:
    model = getattr(keras.applications, name)(weights=None, input_shape=(32, 32, 3), classes=10)
    path = tmp_path / "model.keras"
    model.save(path)
    loaded = count_model(load_keras_file(path))
    assert loaded.operations == count_model(model).operations
    assert loaded.parameters == model.count_params()


def test_vgg16_by_hand() -> None:
    # Simonyan and Zisserman 2015, configuration D: channels in and out by size of the image.
    stages = {
        224: [(3, 64), (64, 64)],
        112: [(64, 128), (128, 128)],
        56: [(128, 256), (256, 256), (256, 256)],
        28: [(256, 512), (512, 512), (512, 512)],
        14: [(512, 512)] * 3,
    }
    forward = backward = 0
    for size, convolutions in stages.items():
        for index, (inputs, outputs) in enumerate(convolutions):
            own = 2 * 9 * inputs * outputs * size * size
            gradients = 1 if size == 224 and index == 0 else 2
            forward += own + outputs * size * size
            backward += gradients * own + 2 * 9 * inputs * outputs
        forward += 4 * (size // 2) ** 2 * convolutions[-1][1]
    for inputs, outputs, activation in ((25088, 4096, 1), (4096, 4096, 1), (4096, 1000, 13)):
        forward += 2 * inputs * outputs + activation * outputs
        backward += 4 * inputs * outputs + 2 * (inputs + 1) * outputs
    model = keras.applications.VGG16(weights=None)
    assert count_model(model).operations == Operations(forward, backward)


def small(*layers: Any, size: tuple[int | None, int | None, int] = (8, 8, 4)) -> Any:
    return keras.Sequential([keras.Input(size), *layers])


def test_separable_convolutions_are_two() -> None:
    counted = count_model(small(keras.layers.ReLU(), keras.layers.SeparableConv2D(6, 3, depth_multiplier=2)))
    depthwise, pointwise = 2 * 9 * 8 * 36, 2 * 8 * 6 * 36
    assert counted.by_kind["conv"].count == 2
    assert counted.by_kind["conv"].operations == Operations(
        depthwise + pointwise, 2 * (depthwise + pointwise) + 2 * 9 * 8 + 2 * 8 * 6
    )


def test_only_the_first_half_of_a_separable_convolution_reads_the_images() -> None:
    counted = count_model(small(keras.layers.SeparableConv2D(6, 3)))
    depthwise, pointwise = 2 * 9 * 4 * 36, 2 * 4 * 6 * 36
    assert counted.operations.backward == depthwise + 2 * 9 * 4 + 2 * pointwise + 2 * 4 * 6


def test_fused_activations_count_as_layers_of_their_own() -> None:
    fused = count_model(
        small(
            keras.layers.Conv2D(3, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(5, activation="softmax"),
        )
    )
    apart = count_model(
        small(
            keras.layers.Conv2D(3, 3),
            keras.layers.ReLU(),
            keras.layers.Flatten(),
            keras.layers.Dense(5),
            keras.layers.Activation("softmax"),
        )
    )
    assert fused.operations == apart.operations
    assert [layer.kind for layer in fused.layers] == [layer.kind for layer in apart.layers]


def test_a_layer_used_twice_counts_twice_and_has_its_weights_once() -> None:
    image = keras.Input((8, 8, 4))
    shared = keras.layers.Conv2D(4, 3, padding="same", use_bias=False)
    model = keras.Model(image, shared(shared(image)))
    counted = count_model(model)
    own = 2 * 9 * 4 * 4 * 64
    assert counted.operations == Operations(2 * own, own + 2 * own + 2 * 2 * 9 * 16)
    assert counted.parameters == model.count_params() == 144


def test_nested_models_count_like_flat_ones() -> None:
    def block() -> list[Any]:
        return [keras.layers.Conv2D(4, 3, padding="same"), keras.layers.BatchNormalization(), keras.layers.ReLU()]

    inner = small(*block())
    assert count_model(small(inner, inner)).operations == count_model(small(*block(), *block())).operations


def backbone(size: tuple[int | None, int | None, int], frozen: bool, depth: int = 1) -> Any:
    """Two convolutions with a normalisation on 8 x 8 images, then a dense layer."""
    first, second = (keras.layers.Conv2D(8, 3, padding="same") for _ in range(2))
    between = (keras.layers.BatchNormalization(), keras.layers.ReLU())
    inner = small(first, *between, second, keras.layers.GlobalAveragePooling2D(), size=size)
    for _ in range(depth - 1):
        outer = keras.Input(size)
        inner = keras.Model(outer, inner(outer, training=False))
    inner.trainable = not frozen
    image = keras.Input((8, 8, 4))
    return keras.Model(image, keras.layers.Dense(10, activation="softmax")(inner(image, training=False)))


CONV1, CONV2, CONV_WEIGHTS = 2 * 9 * 4 * 8 * 64, 2 * 9 * 8 * 8 * 64, 2 * 9 * 8
HEAD = 4 * 8 * 10 + 2 * 9 * 10
"""Backward operations of the backbone's head, by the rule of a dense layer."""


@pytest.mark.parametrize("size", [(8, 8, 4), (None, None, 4)], ids=["fixed", "free"])
@pytest.mark.parametrize("depth", [1, 3])
def test_nested_models_have_the_shapes_of_their_calls_and_count_what_trains(
    size: tuple[int | None, int | None, int], depth: int
) -> None:
    trained, frozen = (count_model(backbone(size, frozen, depth)) for frozen in (False, True))
    forward = CONV1 + CONV2 + 7 * 512 + 512 + 512 + 4 * 8 + 2 * 80 + 13 * 10
    backward = CONV1 + CONV_WEIGHTS * 4 + 36 + 2 * CONV2 + CONV_WEIGHTS * 8 + HEAD
    assert trained.operations == Operations(forward, backward)
    assert frozen.operations == Operations(forward, HEAD)


def test_one_model_called_at_two_sizes_counts_each() -> None:
    inner = small(keras.layers.ReLU(), size=(None, None, 3))
    one, other = keras.Input((4, 4, 3)), keras.Input((6, 2, 3))
    model = keras.Model([one, other], [inner(one), inner(other)])
    assert count_model(model).operations.forward == 4 * 4 * 3 + 6 * 2 * 3


def test_a_frozen_layer_passes_gradients_to_those_before_it_that_train() -> None:
    convolutions = [keras.layers.Conv2D(4, 3, padding="same", use_bias=False) for _ in range(4)]
    own, weights = 2 * 9 * 16 * 64, 2 * 9 * 16
    for frozen, wanted in (
        ((0,), [0, own + weights, 2 * own + weights, 2 * own + weights]),  # as before the images
        ((1,), [own + weights, own, 2 * own + weights, 2 * own + weights]),
        ((3,), [own + weights, 2 * own + weights, 2 * own + weights, own]),
        ((0, 1, 2, 3), [0, 0, 0, 0]),
    ):
        for number, layer in enumerate(convolutions):
            layer.trainable = number not in frozen
        found = [
            layer.operations.backward for layer in count_model(small(*convolutions)).layers if layer.kind == "conv"
        ]
        assert found == wanted, frozen


def test_frozen_normalisation_has_no_update_and_a_file_keeps_what_is_frozen(tmp_path: Path) -> None:
    model = small(keras.layers.BatchNormalization(trainable=False), keras.layers.Conv2D(4, 3))
    assert [layer.operations.backward for layer in count_model(model).layers[1:2]] == [0]
    still = small(keras.layers.BatchNormalization(center=False, scale=False))
    assert count_model(still).operations.backward == 36
    model.save(tmp_path / "frozen.keras")
    assert count_model(load_keras_file(tmp_path / "frozen.keras")).operations == count_model(model).operations


def test_adapters_quantised_layers_and_layers_that_train_in_part_are_refused_by_name() -> None:
    dense = [keras.layers.Dense(4, name=name) for name in ("plain", "lora", "int8", "bias", "weights")]
    activation = keras.layers.Dense(4, activation=keras.layers.ReLU(max_value=6), name="six")
    model = keras.Sequential([keras.Input((8,)), *dense, activation])
    dense[1].enable_lora(2)
    dense[2].quantize("int8")
    dense[3].bias.trainable = False
    dense[4].kernel.trainable = False
    with pytest.raises(UncountedLayerError) as error:
        count_model(model)
    assert error.value.layers == (
        "lora (Dense: with a LoRA adapter)",
        "int8 (Dense: quantised to int8)",
        "bias (Dense: trains without its bias)",
        "weights (Dense: trains without its kernel)",
        "six (Dense: activation 'ReLU')",
    )


@pytest.mark.parametrize("structure", [list, dict])
def test_models_of_several_inputs_and_outputs_are_profiled(structure: type) -> None:
    names = ("second", "first")
    images = [keras.Input((8, 8, channels), name=name) for name, channels in zip(names, (3, 1), strict=True)]
    joined = keras.layers.Concatenate()([keras.layers.Conv2D(4, 3)(image) for image in images])
    model = keras.Model(
        images if structure is list else dict(zip(names, images, strict=True)), [joined, keras.layers.Flatten()(joined)]
    )
    counted = count_model(model).operations.forward
    assert tensorflow_forward(model) == counted + 4 * 36 * 2  # and the additions of the biases


def test_a_model_that_cannot_be_profiled_is_named_with_the_reason() -> None:
    def fail(inputs: Any) -> Any:
        raise TypeError("only symbols are taken")

    model = small(keras.layers.Lambda(fail, output_shape=(8, 8, 4)))
    with pytest.raises(AiperfError, match=r"profiler cannot count 'sequential.*': .*only symbols"):
        tensorflow_forward(model)


@pytest.mark.parametrize("name", ["Xception"])
def test_the_applications_of_keras_count_as_the_profiler_does(name: str) -> None:
    size = benchmark.SIZES.get(name, 32)
    model = getattr(keras.applications, name)(weights=None, input_shape=(size, size, 3), classes=10)
    counted = count_model(model, SCIENCE_1)
    assert abs(tensorflow_forward(model) / counted.operations.forward - 1) < 0.02
    model.trainable = False
    frozen = count_model(model, SCIENCE_1)
    assert frozen.operations == Operations(counted.operations.forward, 0)
    assert frozen.parameters == counted.parameters == model.count_params()


def test_all_layers_that_the_rules_do_not_cover_are_listed_at_once() -> None:
    model = small(
        keras.layers.Conv2D(4, 3, activation="gelu", name="a"),
        keras.layers.ReLU(max_value=6, name="b"),
        keras.layers.AveragePooling2D(2, name="c"),
        keras.layers.BatchNormalization(axis=1, name="d"),
        keras.layers.Dense(3, name="e"),
        keras.layers.LayerNormalization(name="f"),
        keras.layers.Activation("linear", name="g"),
    )
    with pytest.raises(UncountedLayerError) as error:
        count_model(model)
    assert error.value.layers == (
        "a (Conv2D: activation 'gelu')",
        "b (ReLU: with a ceiling, slope or threshold)",
        "c (AveragePooling2D)",
        "d (BatchNormalization: over axis 1, not over the channels)",
        "e (Dense: on an input that is not flat)",
        "f (LayerNormalization)",
        "g (Activation: activation 'linear')",
    )


def test_bare_operations_in_a_model_are_not_passed_over() -> None:
    image = keras.Input((8, 8, 4))
    with pytest.raises(UncountedLayerError, match="Multiply"):
        count_model(keras.Model(image, image * 2.0))


class Subclassed(keras.Model):  # type: ignore[misc]
    def call(self, inputs: Any) -> Any:
        return inputs


def test_models_without_a_graph_or_a_size_are_refused() -> None:
    with pytest.raises(UsageError, match="is subclassed"):
        count_model(Subclassed())
    with pytest.raises(UsageError, match="is not built"):
        count_model(keras.Sequential([keras.layers.ReLU()]))
    with pytest.raises(UsageError, match="fixed image size"):
        count_model(small(keras.layers.ReLU(), size=(None, None, 3)))


def test_broken_keras_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.keras"
    model = small(keras.layers.ReLU())
    model.save(path)
    content = path.read_bytes()
    for broken in (b"", b"not a zip", content[: len(content) // 2]):
        path.write_bytes(broken)
        with pytest.raises(UsageError, match=r"x\.keras: cannot be read as a Keras model"):
            load_keras_file(path)


def test_code_in_a_keras_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "code.keras"
    small(keras.layers.Lambda(lambda x: x * 2)).save(path)
    with pytest.raises(UsageError, match="cannot be read as a Keras model"):
        load_keras_file(path)
