"""Readers of Keras layers: the facts of each use of a layer, for the rules of the count."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from aiperf.network.layers import Shape
from aiperf.network.operations import LayerFacts
from replica.trainer.model.roi_align import RoiAligned


@dataclass(frozen=True, slots=True)
class Call:
    """One use of a layer in a model: the layer and the shapes of its tensors, batch left out."""

    layer: Any
    inputs: tuple[Shape, ...]
    output: Shape


CountedPart = tuple[str, LayerFacts]
"""Kind of a layer in `aiperf.network.operations`, and the facts that its rule looks at."""

Reader = Callable[[Call], list[CountedPart]]
READERS: dict[type, Reader] = {}
"""Readers by the class of a Keras layer.

A layer has one part, or several if an activation or a second convolution is fused in.
"""


def reads(*layers: type) -> Callable[[Reader], Reader]:
    """Register a reader for exactly these Keras layer classes.

    A subclass may compute something else.
    """

    def register(function: Reader) -> Reader:
        READERS.update(dict.fromkeys(layers, function))
        return function

    return register


def _plain(kind: str) -> Reader:
    return lambda call: [(kind, LayerFacts(call.inputs, call.output))]


READERS.update(
    {
        keras.layers.InputLayer: _plain("input"),
        keras.layers.Dropout: _plain("dropout"),
        keras.layers.SpatialDropout2D: _plain("dropout"),
        keras.layers.Flatten: _plain("flatten"),
        keras.layers.ZeroPadding2D: _plain("zeropad"),
        keras.layers.Concatenate: _plain("concat"),
        keras.layers.Add: _plain("add"),
        keras.layers.SpatialDropout3D: _plain("dropout"),
        keras.layers.ZeroPadding3D: _plain("zeropad"),
        keras.layers.Reshape: _plain("reshape"),
        keras.layers.LeakyReLU: _plain("leakyrelu"),
    }
)


class NotCountedError(Exception):
    """A layer of a known class whose use the rules do not cover."""


def _require(condition: bool, reason: str) -> None:
    if not condition:
        raise NotCountedError(reason)


def check_weights(layer: Any, trained: frozenset[int]) -> bool:
    """True if the weights of a layer train, or if it has none; False if it is frozen.

    `trained` are the ids of the variables that the model trains. Raises NotCountedError for weights
    that the rules do not count: adapters, quantised ones, and layers that train in part.
    """
    _require(not getattr(layer, "lora_enabled", False), "with a LoRA adapter")
    quantised = getattr(layer, "quantization_mode", None)
    _require(quantised is None, f"quantised to {quantised}")
    train = [id(weight) in trained for weight in getattr(layer, "_trainable_variables", ())]
    if any(train) and not all(train):
        frozen = [weight.name for weight, trains in zip(layer._trainable_variables, train, strict=True) if not trains]
        raise NotCountedError(f"trains without its {' and '.join(frozen)}")
    # Batch normalisation without scale and offset has moving statistics alone.
    return any(train) or (not train and bool(layer.trainable)) or not layer.weights


_ACTIVATIONS = {
    "relu": "relu",
    "softmax": "softmax",
    "leaky_relu": "leakyrelu",
    "sigmoid": "sigmoid",
    "tanh": "tanh",
}
"""Activations of Keras that the rules cover, and their kinds."""


def _fused_activation(call: Call) -> list[CountedPart]:
    name = keras.activations.serialize(call.layer.activation)
    if isinstance(name, dict):
        name = name["class_name"]  # a layer as an activation, with settings of its own
    if name == "linear":
        return []
    _require(name in _ACTIVATIONS, f"activation {name!r}")
    return [(_ACTIVATIONS[name], LayerFacts((call.output,), call.output))]


def _spatial(call: Call) -> None:
    _require(len(call.output) in (3, 4), "not an image")
    _require(call.layer.data_format == "channels_last", "channels first")


@reads(keras.layers.Conv2D, keras.layers.Conv3D)
def _conv(call: Call) -> list[CountedPart]:
    _spatial(call)
    kernel = tuple(call.layer.kernel.shape)
    return [("conv", LayerFacts(call.inputs, call.output, kernel=kernel)), *_fused_activation(call)]


@reads(keras.layers.Conv2DTranspose, keras.layers.Conv3DTranspose)
def _conv_transpose(call: Call) -> list[CountedPart]:
    _spatial(call)
    kernel = tuple(call.layer.kernel.shape)
    return [("convtranspose", LayerFacts(call.inputs, call.output, kernel=kernel)), *_fused_activation(call)]


@reads(keras.layers.DepthwiseConv2D)
def _depthwise(call: Call) -> list[CountedPart]:
    # Kernel (Kh, Kw, Ci, multiplier): as many groups as channels, one channel a group.
    _spatial(call)
    height, width, channels, multiplier = call.layer.kernel.shape
    kernel = (height, width, 1, channels * multiplier)
    return [("conv", LayerFacts(call.inputs, call.output, kernel=kernel)), *_fused_activation(call)]


@reads(keras.layers.SeparableConv2D)
def _separable(call: Call) -> list[CountedPart]:
    _spatial(call)
    height, width, channels, multiplier = call.layer.depthwise_kernel.shape
    between = (*call.output[:2], channels * multiplier)
    pointwise = tuple(call.layer.pointwise_kernel.shape)
    return [
        ("conv", LayerFacts(call.inputs, between, kernel=(height, width, 1, channels * multiplier))),
        ("conv", LayerFacts((between,), call.output, kernel=pointwise)),
        *_fused_activation(call),
    ]


@reads(keras.layers.Dense)
def _dense(call: Call) -> list[CountedPart]:
    _require(len(call.output) in (1, 2), "on an input that is not flat")
    kernel = tuple(call.layer.kernel.shape)
    return [("dense", LayerFacts(call.inputs, call.output, kernel=kernel)), *_fused_activation(call)]


@reads(keras.layers.BatchNormalization)
def _batch_norm(call: Call) -> list[CountedPart]:
    axis = call.layer.axis
    _require(axis in (-1, len(call.output)), f"over axis {axis}, not over the channels")
    return [("batchnorm", LayerFacts(call.inputs, call.output))]


@reads(keras.layers.Activation)
def _activation(call: Call) -> list[CountedPart]:
    parts = _fused_activation(call)
    _require(bool(parts), "activation 'linear'")
    return parts


@reads(keras.layers.ReLU)
def _relu(call: Call) -> list[CountedPart]:
    layer = call.layer
    plain = layer.max_value is None and not layer.negative_slope and not layer.threshold
    _require(plain, "with a ceiling, slope or threshold")
    return [("relu", LayerFacts(call.inputs, call.output))]


@reads(keras.layers.Softmax)
def _softmax(call: Call) -> list[CountedPart]:
    _require(call.layer.axis in (-1, len(call.output)), "not over the last axis")
    return [("softmax", LayerFacts(call.inputs, call.output))]


@reads(keras.layers.MaxPooling2D, keras.layers.MaxPooling3D)
def _max_pool(call: Call) -> list[CountedPart]:
    _spatial(call)
    return [("maxpool", LayerFacts(call.inputs, call.output, window=tuple(call.layer.pool_size)))]


@reads(keras.layers.AveragePooling2D, keras.layers.AveragePooling3D)
def _average_pool(call: Call) -> list[CountedPart]:
    _spatial(call)
    return [("averagepool", LayerFacts(call.inputs, call.output, window=tuple(call.layer.pool_size)))]


@reads(keras.layers.Rescaling)
def _scale(call: Call) -> list[CountedPart]:
    _require(np.ndim(call.layer.scale) == 0 and call.layer.offset == 0, "with an offset or several factors")
    return [("scale", LayerFacts(call.inputs, call.output))]


@reads(keras.layers.UpSampling2D)
def _upsample(call: Call) -> list[CountedPart]:
    _spatial(call)
    _require(call.layer.interpolation == "nearest", "with interpolation")
    return [("upsample", LayerFacts(call.inputs, call.output))]


@reads(keras.layers.GlobalAveragePooling2D, keras.layers.GlobalAveragePooling3D)
def _global_pool(call: Call) -> list[CountedPart]:
    _require(call.layer.data_format == "channels_last", "channels first")
    return [("globalpool", LayerFacts(call.inputs, call.output))]


@reads(RoiAligned)
def _roi_align(call: Call) -> list[CountedPart]:
    return [("roialign", LayerFacts(call.inputs, call.output, window=(call.layer.samples, call.layer.samples)))]
