"""A Keras model built from an `Architecture`, and the check that it is the counted one.

A model may have one layer for several nodes of the architecture, with a call for each.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import keras

from aiperf.errors import TrialFailedError
from aiperf.frameworks import hidden
from aiperf.network import layers
from aiperf.network.architecture import INPUTS, Architecture, Node
from replica.trainer.model.roi_align import RoiAligned


@dataclass(frozen=True)
class Uses:
    """The layer calls of a built model, by the name of the architecture's node."""

    calls: Mapping[str, Any]
    """Keras's node of each call, with its operation and its tensors."""
    names: Mapping[tuple[int, int], str]
    """Names of the nodes by layer (id) and number of the call."""

    def sources(self, tensors: Any) -> tuple[str, ...]:
        """Names of the nodes that made these tensors.

        Raises KeyError for a tensor of a layer that no node has.
        """
        found = tensors if isinstance(tensors, list | tuple) else [tensors]
        histories = [tensor._keras_history for tensor in found]
        return tuple(self.names[id(history.operation), history.node_index] for history in histories)


def uses_of(model: Any, architecture: Architecture) -> Uses:
    """Find every node's call: a node that shares a layer has the next call after the one before.

    Raises TrialFailedError ("mismatch") if the model has not exactly these calls.
    """
    by_name = {layer.name: layer for layer in model.layers}
    # A layer that several models share has nodes of all of them: only this model's count.
    inside = {id(call) for calls in model._nodes_by_depth.values() for call in calls}
    left = {
        name: [number for number, call in enumerate(layer._inbound_nodes) if id(call) in inside]
        for name, layer in by_name.items()
    }
    calls: dict[str, Any] = {}
    names: dict[tuple[int, int], str] = {}
    for node in architecture.nodes:
        owner = node.shares or node.name
        if not left.get(owner):
            raise TrialFailedError("mismatch", f"layer {node.name!r} is counted but not in the built model")
        number = left[owner].pop(0)
        calls[node.name] = by_name[owner]._inbound_nodes[number]
        names[id(by_name[owner]), number] = node.name
    uncounted = [name for name, calls_left in left.items() if calls_left]
    if uncounted:
        raise TrialFailedError("mismatch", f"the built model has layers that are not counted: {', '.join(uncounted)}")
    return Uses(calls, names)


Build = Callable[[str, Any, tuple[layers.Shape, ...]], Any]

Normalise = Callable[[Any, Any], tuple[Any, Any, Any]]
"""Function that normalises a batch (..., C) as a layer says: it gives outputs, and each channel's
mean and variance, divided by the number of values (C)."""


def _conv(name: str, layer: layers.Conv, inputs: tuple[layers.Shape, ...]) -> Any:
    shared: dict[str, Any] = {
        "name": name,
        "kernel_size": layer.kernel,
        "strides": layer.stride,
        "padding": layer.padding,
        "dilation_rate": layer.dilation,
        "use_bias": layer.bias,
    }
    channels = inputs[0][-1]
    if len(layer.kernel) == 3:
        return keras.layers.Conv3D(layer.filters, groups=layer.groups, kernel_initializer="he_normal", **shared)
    if layer.groups == channels > 1:
        multiplier = layer.filters // channels
        # Keras takes all channels for inputs of one output, but a depthwise kernel reads only one.
        he_normal = keras.initializers.VarianceScaling(2.0 * channels, "fan_in", "truncated_normal")
        return keras.layers.DepthwiseConv2D(depth_multiplier=multiplier, depthwise_initializer=he_normal, **shared)
    return keras.layers.Conv2D(layer.filters, groups=layer.groups, kernel_initializer="he_normal", **shared)


def _conv_transpose(name: str, layer: layers.ConvTranspose, inputs: tuple[layers.Shape, ...]) -> Any:
    kind = _by_axes(layer.kernel, keras.layers.Conv2DTranspose, keras.layers.Conv3DTranspose)
    return kind(
        layer.filters,
        layer.kernel,
        strides=layer.stride,
        padding="same",
        use_bias=layer.bias,
        kernel_initializer="he_normal",
        name=name,
    )


def _by_axes(window: layers.Shape, flat: Any, solid: Any) -> Any:
    return solid if len(window) == 3 else flat


def _batch_norm(name: str, layer: layers.BatchNorm, inputs: tuple[layers.Shape, ...]) -> Any:
    return keras.layers.BatchNormalization(
        momentum=layers.BATCHNORM_MOMENTUM,
        epsilon=layers.BATCHNORM_EPSILON,
        gamma_initializer="zeros" if layer.zero_scale else "ones",
        name=name,
    )


def _dense(name: str, layer: layers.Dense, inputs: tuple[layers.Shape, ...]) -> Any:
    return keras.layers.Dense(layer.units, use_bias=layer.bias, kernel_initializer="he_normal", name=name)


def _max_pool(name: str, layer: layers.MaxPool, inputs: tuple[layers.Shape, ...]) -> Any:
    kind = _by_axes(layer.window, keras.layers.MaxPooling2D, keras.layers.MaxPooling3D)
    return kind(layer.window, strides=layer.stride, padding=layer.padding, name=name)


def _average_pool(name: str, layer: layers.AveragePool, inputs: tuple[layers.Shape, ...]) -> Any:
    kind = _by_axes(layer.window, keras.layers.AveragePooling2D, keras.layers.AveragePooling3D)
    return kind(layer.window, strides=layer.stride, padding=layer.padding, name=name)


def _global_pool(name: str, layer: layers.GlobalAveragePool, inputs: tuple[layers.Shape, ...]) -> Any:
    kind = _by_axes(inputs[0][:-1], keras.layers.GlobalAveragePooling2D, keras.layers.GlobalAveragePooling3D)
    return kind(name=name)


def _zero_pad(name: str, layer: layers.ZeroPad, inputs: tuple[layers.Shape, ...]) -> Any:
    return keras.layers.ZeroPadding2D((layer.vertical, layer.horizontal), name=name)


def _merge(kind: Callable[..., Any]) -> Build:
    return lambda name, layer, inputs: kind(name=name)


_BUILDERS: dict[str, Build] = {
    layers.Conv.kind: _conv,
    layers.BatchNorm.kind: _batch_norm,
    layers.Dense.kind: _dense,
    layers.MaxPool.kind: _max_pool,
    layers.ZeroPad.kind: _zero_pad,
    layers.ReLU.kind: _merge(keras.layers.ReLU),
    # The loss needs more than 16 bits, whatever the precision of the layers.
    layers.Softmax.kind: lambda name, layer, inputs: keras.layers.Softmax(name=name, dtype="float32"),
    layers.Dropout.kind: lambda name, layer, inputs: keras.layers.Dropout(layer.rate, name=name),
    layers.Flatten.kind: _merge(keras.layers.Flatten),
    layers.GlobalAveragePool.kind: _global_pool,
    layers.ConvTranspose.kind: _conv_transpose,
    layers.AveragePool.kind: _average_pool,
    layers.LeakyReLU.kind: lambda name, layer, inputs: keras.layers.LeakyReLU(layer.slope, name=name),
    layers.Sigmoid.kind: lambda name, layer, inputs: keras.layers.Activation("sigmoid", name=name, dtype="float32"),
    layers.Tanh.kind: lambda name, layer, inputs: keras.layers.Activation("tanh", name=name),
    layers.Scale.kind: lambda name, layer, inputs: keras.layers.Rescaling(layer.factor, name=name),
    layers.Reshape.kind: lambda name, layer, inputs: keras.layers.Reshape(layer.shape, name=name),
    layers.Upsample.kind: lambda name, layer, inputs: keras.layers.UpSampling2D(layer.factors, name=name),
    layers.RoiAlign.kind: lambda name, layer, inputs: RoiAligned(layer.bins, layer.samples, layer.stride, name=name),
    "add": _merge(keras.layers.Add),
    "concat": _merge(keras.layers.Concatenate),
}


def set_up(precision: str, seed: int) -> None:
    """Set the precision and the seed of the layers that are built from now on.

    And what a user's `~/.keras/keras.json` may have set otherwise.
    """
    keras.config.set_floatx("float32")
    keras.config.set_epsilon(1e-7)
    keras.config.set_image_data_format("channels_last")
    keras.mixed_precision.set_global_policy(precision)
    # To seed `tf.data`, Keras would import TensorFlow in addition to another framework.
    with hidden("tensorflow"):
        keras.utils.set_random_seed(seed)


def build_model(architecture: Architecture, kept: Mapping[str, Any] = MappingProxyType({})) -> Any:
    """Build the Keras model, freshly initialised after He et al. 2015.

    Layers that are `kept` are used again under their names, as for another number of regions.
    Raises TrialFailedError ("build") naming the layer that Keras cannot build.
    """
    tensors: dict[str, Any] = {}
    built = dict(kept)
    for node in architecture.nodes:
        if isinstance(node.layer, INPUTS):
            inputs = tensors[node.name] = keras.Input(architecture.input_shape, name=node.name)
        else:
            tensors[node.name] = _apply(architecture, node, [tensors[name] for name in node.inputs], built)
    outputs = [tensors[name] for name in (*architecture.heads, architecture.output.name)]
    return keras.Model(inputs, outputs if architecture.heads else outputs[0])


def _apply(architecture: Architecture, node: Node, inputs: list[Any], built: dict[str, Any]) -> Any:
    layer: layers.Layer = node.layer
    try:
        # A node that shares weights calls the layer of the node that owns them.
        owner = node.shares or node.name
        if owner not in built:
            built[owner] = _BUILDERS[layer.kind](owner, layer, architecture.input_shapes(node))
        return built[owner](inputs if len(inputs) > 1 else inputs[0])
    except (KeyError, ValueError, TypeError) as error:
        raise TrialFailedError("build", f"layer {node.name!r} ({layer.kind}): {error}") from error


def normalise_by(model: Any, operation: Normalise, axes: int | None = None) -> None:
    """Let the model's layers normalise batches by a framework's own operation when they train.

    The layers, their variables and, but for rounding, their results stay (Ioffe and Szegedy 2015).
    With `axes`, only layers whose inputs have this many axes change.
    """
    for layer in model.layers:
        # Exactly Keras's class, whose computation this is.
        if type(layer) is not keras.layers.BatchNormalization or not (layer.scale and layer.center):
            continue
        known = len(layer.input.shape)
        if axes in (None, known) and layer.axis in (-1, known - 1):
            # An attribute of the instance hides the method of its class, which Keras would call.
            layer.call = partial(_normalise, layer, layer.call, operation)


def _normalise(
    layer: Any, otherwise: Any, operation: Normalise, inputs: Any, training: Any = None, mask: Any = None
) -> Any:
    if not training or mask is not None or not layer.trainable:
        return otherwise(inputs, training=training, mask=mask)
    outputs, mean, variance = operation(layer, inputs)
    for moving, own in ((layer.moving_mean, mean), (layer.moving_variance, variance)):
        moving.assign(moving * layer.momentum + own * (1 - layer.momentum))
    return keras.ops.cast(outputs, layer.compute_dtype)


def check_model(model: Any, architecture: Architecture) -> None:
    """Check that every layer of the built model has exactly the weights that are counted.

    Raises TrialFailedError ("mismatch") naming the first layer that differs: operations that do not
    run must never be counted.
    """
    uses = uses_of(model, architecture)
    for node in architecture.nodes:
        call = uses.calls[node.name]
        wanted = [_keras_shape(call.operation, shape) for shape in architecture.weight_shapes(node).values()]
        found = [tuple(weight.shape) for weight in call.operation.weights]
        if wanted != found:
            raise TrialFailedError("mismatch", f"layer {node.name!r}: counted weights {wanted}, built weights {found}")
        _check_output(node, call, architecture.shapes[node.name])


def _keras_shape(layer: Any, shape: layers.Shape) -> layers.Shape:
    if isinstance(layer, keras.layers.DepthwiseConv2D) and len(shape) == 4:
        # Counted as a kernel of groups (H, W, 1, I * M); Keras has (H, W, I, M).
        channels = shape[3] // layer.depth_multiplier
        return (shape[0], shape[1], channels, layer.depth_multiplier)
    return shape


def _check_output(node: Node, call: Any, counted: layers.Shape) -> None:
    built = tuple(call.output_tensors[0].shape[1:])
    if built != counted:
        raise TrialFailedError("mismatch", f"layer {node.name!r}: counted output {counted}, built output {built}")
