"""The operation count of a built Keras model: from its real weights and tensors, layer by layer.

This is the second way to the number of `aiperf.network.operations.count`: the rules are the same,
but every shape comes from the model that Keras built. It takes any functional or sequential model
with fixed image sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import keras

from aiperf.errors import UncountedLayerError, UsageError
from aiperf.network.layers import Shape
from aiperf.network.operations import RULES, LayerCount, LayerFacts, NetworkCount, count_layer, sees_only_images


@dataclass(frozen=True, slots=True)
class Call:
    """One use of a layer in a model: the layer and the shapes of its tensors, batch left out."""

    layer: Any
    inputs: tuple[Shape, ...]
    output: Shape


CountedPart = tuple[str, LayerFacts]
"""A kind of layer of `aiperf.network.operations`, and the facts that its rule looks at."""

Reader = Callable[[Call], list[CountedPart]]
READERS: dict[type, Reader] = {}
"""Readers of Keras layers.

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
    }
)


class _NotCountedError(Exception):
    """A layer of a known class whose use the rules do not cover."""


def _require(condition: bool, reason: str) -> None:
    if not condition:
        raise _NotCountedError(reason)


def _fused_activation(call: Call) -> list[CountedPart]:
    name = keras.activations.serialize(call.layer.activation)
    if name == "linear":
        return []
    _require(name in ("relu", "softmax"), f"activation {name!r}")
    return [(name, LayerFacts((call.output,), call.output))]


def _spatial(call: Call) -> None:
    _require(len(call.output) == 3, "not an image")
    _require(call.layer.data_format == "channels_last", "channels first")


@reads(keras.layers.Conv2D)
def _conv(call: Call) -> list[CountedPart]:
    _spatial(call)
    kernel = tuple(call.layer.kernel.shape)
    return [("conv", LayerFacts(call.inputs, call.output, kernel=kernel)), *_fused_activation(call)]


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
    _require(len(call.output) == 1, "on an input that is not flat")
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


@reads(keras.layers.MaxPooling2D)
def _max_pool(call: Call) -> list[CountedPart]:
    _spatial(call)
    return [("maxpool", LayerFacts(call.inputs, call.output, window=tuple(call.layer.pool_size)))]


@reads(keras.layers.GlobalAveragePooling2D)
def _global_pool(call: Call) -> list[CountedPart]:
    _require(call.layer.data_format == "channels_last", "channels first")
    return [("globalpool", LayerFacts(call.inputs, call.output))]


@dataclass
class _Walk:
    """State of a walk over a model and the models nested in it."""

    layers: list[LayerCount] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    only_images: dict[int, bool] = field(default_factory=dict)
    """By tensor: whether only layers that count zero lie between the network's input and it."""
    weighed: set[int] = field(default_factory=set)
    """Layers whose parameters are counted: a layer that is used twice has its weights once."""


def count_model(model: Any) -> NetworkCount:
    """Count a functional or sequential Keras model, per image.

    Raises UncountedLayerError listing every layer that the rules do not cover, and UsageError if
    the model has no graph (a subclassed model, an unbuilt sequential one) or no fixed image size.
    """
    walk = _Walk()
    _visit(model, walk, prefix="")
    if walk.problems:
        raise UncountedLayerError(walk.problems)
    return NetworkCount(tuple(walk.layers))


def _graph(model: Any) -> Any:
    if isinstance(model, keras.Sequential):
        if not model.built or model._functional is None:
            raise UsageError(f"model {model.name!r} is not built: give it an Input of fixed size")
        return model._functional
    if not hasattr(model, "_nodes_by_depth"):
        raise UsageError(f"model {model.name!r} is subclassed: only functional and sequential models have a graph")
    return model


def _calls(model: Any) -> Iterator[Any]:
    """Every use of a layer in topological order, from internals of Keras's `Function`."""
    graph = _graph(model)
    for depth in sorted(graph._nodes_by_depth, reverse=True):
        yield from graph._nodes_by_depth[depth]


def _visit(model: Any, walk: _Walk, prefix: str) -> None:
    for node in _calls(model):
        layer = node.operation
        name = f"{prefix}{layer.name}"
        if isinstance(layer, keras.Model):
            _enter(layer, node, walk, f"{name}/")
            continue
        if prefix and isinstance(layer, keras.layers.InputLayer):
            continue  # the outer model's tensor, which `_enter` has described
        inputs = [walk.only_images[id(tensor)] for tensor in node.input_tensors]
        parts = _parts(layer, node, name, walk)
        _count_parts(layer, name, parts, all(inputs), walk)
        seen = bool(parts) and all(sees_only_images(kind, [all(inputs)]) for kind, _ in parts)
        for tensor in node.output_tensors:
            walk.only_images[id(tensor)] = seen


def _enter(inner: Any, node: Any, walk: _Walk, prefix: str) -> None:
    graph = _graph(inner)
    for outside, inside in zip(node.input_tensors, graph.inputs, strict=True):
        walk.only_images[id(inside)] = walk.only_images[id(outside)]
    _visit(inner, walk, prefix)
    for outside, inside in zip(node.output_tensors, graph.outputs, strict=True):
        walk.only_images[id(outside)] = walk.only_images[id(inside)]


def _parts(layer: Any, node: Any, name: str, walk: _Walk) -> list[CountedPart]:
    kind = type(layer).__name__
    reader = READERS.get(type(layer))
    if reader is None:
        walk.problems.append(f"{name} ({kind})")
        return []
    try:
        call = Call(layer, tuple(map(_shape, node.input_tensors)), _shape(node.output_tensors[0]))
        return reader(call)
    except _NotCountedError as error:
        walk.problems.append(f"{name} ({kind}: {error})")
        return []


def _shape(tensor: Any) -> Shape:
    shape = tuple(tensor.shape[1:])
    if any(size is None for size in shape):
        raise UsageError(f"tensor {tensor.name!r} has shape {shape}: counting needs a fixed image size")
    return shape


def _count_parts(layer: Any, name: str, parts: list[CountedPart], only_images: bool, walk: _Walk) -> None:
    for index, (kind, facts) in enumerate(parts):
        if kind not in RULES:
            walk.problems.append(f"{name} ({kind})")
            continue
        seen = replace(facts, reads_network_input=index == 0 and only_images)
        parameters = 0
        if index == 0 and id(layer) not in walk.weighed:
            walk.weighed.add(id(layer))
            parameters = layer.count_params()
        label = name if index == 0 else f"{name}_{kind}"
        walk.layers.append(LayerCount(label, kind, count_layer(kind, seen), parameters))
