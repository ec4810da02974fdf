"""The model that Keras has built, read back: its architecture, and its types of compute."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import keras

from aiperf.errors import ArchitectureError, TrialFailedError
from aiperf.network import layers
from aiperf.network.architecture import Architecture, Node
from replica.trainer.model.builder import Uses, uses_of
from replica.trainer.model.roi_align import RoiAligned

WITH_KERNEL = (
    keras.layers.Conv2D,
    keras.layers.Conv3D,
    keras.layers.Conv2DTranspose,
    keras.layers.Conv3DTranspose,
    keras.layers.DepthwiseConv2D,
    keras.layers.Dense,
)


def _plain_activation(layer: Any) -> None:
    if layer.activation is not keras.activations.linear:
        raise ValueError("it has an activation")


def _conv(layer: Any, tunable: bool) -> layers.Layer:
    _plain_activation(layer)
    return layers.Conv(
        layer.filters,
        layer.kernel_size,
        layer.strides,
        layer.padding,
        layer.dilation_rate,
        layer.groups,
        layer.use_bias,
        tunable,
    )


def _depthwise(layer: Any, tunable: bool) -> layers.Layer:
    _plain_activation(layer)
    channels = layer.input.shape[-1]
    return layers.Conv(
        channels * layer.depth_multiplier,
        layer.kernel_size,
        layer.strides,
        layer.padding,
        layer.dilation_rate,
        channels,
        layer.use_bias,
        tunable,
    )


def _batch_norm(layer: Any, tunable: bool) -> layers.Layer:
    if (layer.momentum, layer.epsilon) != (layers.BATCHNORM_MOMENTUM, layers.BATCHNORM_EPSILON):
        raise ValueError(f"momentum {layer.momentum}, epsilon {layer.epsilon}")
    return layers.BatchNorm(zero_scale=isinstance(layer.gamma_initializer, keras.initializers.Zeros))


def _dense(layer: Any, tunable: bool) -> layers.Layer:
    _plain_activation(layer)
    return layers.Dense(layer.units, layer.use_bias)


def _zero_pad(layer: Any, tunable: bool) -> layers.Layer:
    vertical, horizontal = layer.padding
    return layers.ZeroPad(tuple(vertical), tuple(horizontal))


def _conv_transpose(layer: Any, tunable: bool) -> layers.Layer:
    _plain_activation(layer)
    if layer.padding != "same" or set(layer.dilation_rate) != {1}:
        raise ValueError(f"padding {layer.padding}, dilation {layer.dilation_rate}")
    return layers.ConvTranspose(layer.filters, layer.kernel_size, layer.strides, layer.use_bias)


def _relu(layer: Any, tunable: bool) -> layers.Layer:
    if layer.max_value is not None or layer.negative_slope or layer.threshold:
        raise ValueError("it has a ceiling, a slope or a threshold")
    return layers.ReLU()


def _activation(layer: Any, tunable: bool) -> layers.Layer:
    known: dict[Any, layers.Layer] = {
        keras.activations.sigmoid: layers.Sigmoid(),
        keras.activations.tanh: layers.Tanh(),
    }
    return known[layer.activation]


def _scale(layer: Any, tunable: bool) -> layers.Layer:
    if layer.offset:
        raise ValueError(f"offset {layer.offset}")
    return layers.Scale(float(layer.scale))


def _upsample(layer: Any, tunable: bool) -> layers.Layer:
    if layer.interpolation != "nearest":
        raise ValueError(f"interpolation {layer.interpolation}")
    return layers.Upsample(layer.size)


def _max_pool(layer: Any, tunable: bool) -> layers.Layer:
    return layers.MaxPool(layer.pool_size, layer.strides, layer.padding)


def _average_pool(layer: Any, tunable: bool) -> layers.Layer:
    return layers.AveragePool(layer.pool_size, layer.strides, layer.padding)


_READERS: dict[type, Callable[[Any, bool], layers.Layer]] = {
    keras.layers.Conv2D: _conv,
    keras.layers.Conv3D: _conv,
    keras.layers.Conv2DTranspose: _conv_transpose,
    keras.layers.Conv3DTranspose: _conv_transpose,
    keras.layers.DepthwiseConv2D: _depthwise,
    keras.layers.BatchNormalization: _batch_norm,
    keras.layers.Dense: _dense,
    keras.layers.MaxPooling2D: _max_pool,
    keras.layers.MaxPooling3D: _max_pool,
    keras.layers.AveragePooling2D: _average_pool,
    keras.layers.AveragePooling3D: _average_pool,
    keras.layers.ZeroPadding2D: _zero_pad,
    keras.layers.Dropout: lambda layer, tunable: layers.Dropout(layer.rate),
    keras.layers.ReLU: _relu,
    keras.layers.LeakyReLU: lambda layer, tunable: layers.LeakyReLU(float(layer.negative_slope)),
    keras.layers.Activation: _activation,
    keras.layers.Rescaling: _scale,
    keras.layers.Softmax: lambda layer, tunable: layers.Softmax(),
    keras.layers.Flatten: lambda layer, tunable: layers.Flatten(),
    keras.layers.Reshape: lambda layer, tunable: layers.Reshape(tuple(layer.target_shape)),
    keras.layers.UpSampling2D: _upsample,
    RoiAligned: lambda layer, tunable: layers.RoiAlign(layer.bins, layer.samples, layer.stride),
    keras.layers.GlobalAveragePooling2D: lambda layer, tunable: layers.GlobalAveragePool(),
    keras.layers.GlobalAveragePooling3D: lambda layer, tunable: layers.GlobalAveragePool(),
    keras.layers.Add: lambda layer, tunable: layers.Add(),
    keras.layers.Concatenate: lambda layer, tunable: layers.Concat(),
}
"""Readers of exactly these classes: a subclass may compute something else."""


def architecture_of(model: Any, counted: Architecture) -> Architecture:
    """The architecture that a model has, from Keras's layers and the tensors between them.

    Of the counted one, whose layers have the same names (`builder.check_model`), it takes the order
    of the nodes, the kind of the input layer and the marks of tunable kernels, which change nothing
    that is computed. Raises TrialFailedError ("mismatch") for a layer that no architecture has, or
    that is not trained.
    """
    uses = uses_of(model, counted)
    nodes = tuple(_node(uses, node) for node in counted.nodes)
    wanted = (*counted.heads, counted.output.name)
    outputs = uses.sources(model.outputs)
    if outputs != wanted:
        raise TrialFailedError("mismatch", f"the built model's output is that of {', '.join(outputs)}")
    try:
        return Architecture(nodes, counted.heads)
    except ArchitectureError as error:
        raise TrialFailedError("mismatch", f"the built model is not an architecture: {error}") from None


def _node(uses: Uses, node: Node) -> Node:
    call = uses.calls[node.name]
    layer = call.operation
    try:
        if isinstance(layer, keras.layers.InputLayer):
            return Node(node.name, _input(node, tuple(layer.batch_shape[1:])))
        found = _READERS[type(layer)](layer, isinstance(node.layer, layers.Conv) and node.layer.tunable_kernel)
        inputs = uses.sources(call.input_tensors)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise TrialFailedError("mismatch", f"layer {node.name!r} ({type(layer).__name__}): {error}") from None
    if not layer.trainable:
        raise TrialFailedError("mismatch", f"layer {node.name!r} is not trained")
    return Node(node.name, found, inputs, node.shares)


def _input(node: Node, shape: layers.Shape) -> layers.Layer:
    return layers.InputArray(shape) if isinstance(node.layer, layers.InputArray) else layers.Input(*shape)


def compute_types(model: Any) -> dict[str, int]:
    """Number of convolutions and dense layers by the type that they compute in."""
    found = Counter(str(layer.compute_dtype) for layer in model.layers if isinstance(layer, WITH_KERNEL))
    return dict(sorted(found.items()))
