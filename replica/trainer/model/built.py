"""The model that Keras has built, read back: its architecture, and its types of compute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from aiperf.errors import ArchitectureError, TrialFailedError
from aiperf.network.architecture import Architecture, Node
from aiperf.network.layers import (
    BATCHNORM_EPSILON,
    BATCHNORM_MOMENTUM,
    Add,
    BatchNorm,
    Concat,
    Conv,
    Dense,
    Dropout,
    Flatten,
    GlobalAveragePool,
    Input,
    Layer,
    MaxPool,
    ReLU,
    Softmax,
    ZeroPad,
)
from replica.trainer.collectives.contract import Collective

TEXT_BYTES = 64
"""Bytes of a rank's text that are gathered."""


def _plain_activation(layer: Any) -> None:
    if layer.activation is not keras.activations.linear:
        raise ValueError("it has an activation")


def _conv(layer: Any, tunable: bool) -> Layer:
    _plain_activation(layer)
    return Conv(layer.filters, layer.kernel_size, layer.strides, layer.padding, layer.dilation_rate, layer.groups,
                layer.use_bias, tunable)  # fmt: skip


def _depthwise(layer: Any, tunable: bool) -> Layer:
    _plain_activation(layer)
    channels = layer.input.shape[-1]
    return Conv(channels * layer.depth_multiplier, layer.kernel_size, layer.strides, layer.padding,
                layer.dilation_rate, channels, layer.use_bias, tunable)  # fmt: skip


def _batch_norm(layer: Any, tunable: bool) -> Layer:
    if (layer.momentum, layer.epsilon) != (BATCHNORM_MOMENTUM, BATCHNORM_EPSILON):
        raise ValueError(f"momentum {layer.momentum}, epsilon {layer.epsilon}")
    return BatchNorm(zero_scale=isinstance(layer.gamma_initializer, keras.initializers.Zeros))


def _dense(layer: Any, tunable: bool) -> Layer:
    _plain_activation(layer)
    return Dense(layer.units, layer.use_bias)


def _zero_pad(layer: Any, tunable: bool) -> Layer:
    vertical, horizontal = layer.padding
    return ZeroPad(tuple(vertical), tuple(horizontal))


_READERS: dict[type, Callable[[Any, bool], Layer]] = {
    keras.layers.InputLayer: lambda layer, tunable: Input(*layer.batch_shape[1:]),
    keras.layers.Conv2D: _conv,
    keras.layers.DepthwiseConv2D: _depthwise,
    keras.layers.BatchNormalization: _batch_norm,
    keras.layers.Dense: _dense,
    keras.layers.MaxPooling2D: lambda layer, tunable: MaxPool(layer.pool_size, layer.strides, layer.padding),
    keras.layers.ZeroPadding2D: _zero_pad,
    keras.layers.Dropout: lambda layer, tunable: Dropout(layer.rate),
    keras.layers.ReLU: lambda layer, tunable: ReLU(),
    keras.layers.Softmax: lambda layer, tunable: Softmax(),
    keras.layers.Flatten: lambda layer, tunable: Flatten(),
    keras.layers.GlobalAveragePooling2D: lambda layer, tunable: GlobalAveragePool(),
    keras.layers.Add: lambda layer, tunable: Add(),
    keras.layers.Concatenate: lambda layer, tunable: Concat(),
}
"""Readers of exactly these classes: a subclass may compute something else."""


def architecture_of(model: Any, counted: Architecture) -> Architecture:
    """The architecture that a model has, from Keras's layers and the tensors between them.

    Of the counted one, whose layers have the same names (`builder.check_model`), it takes the order
    of the nodes and the marks of tunable kernels, which change nothing that is computed. Raises
    TrialFailedError ("mismatch") for a layer that no architecture has, or that is not trained.
    """
    nodes = tuple(_node(model.get_layer(node.name), node) for node in counted.nodes)
    outputs = _names(model.output)
    if outputs != (counted.output.name,):
        raise TrialFailedError("mismatch", f"the built model's output is that of {', '.join(outputs)}")
    try:
        return Architecture(nodes)
    except ArchitectureError as error:
        raise TrialFailedError("mismatch", f"the built model is not an architecture: {error}") from None


def _node(layer: Any, node: Node) -> Node:
    try:
        found = _READERS[type(layer)](layer, isinstance(node.layer, Conv) and node.layer.tunable_kernel)
        inputs = () if isinstance(found, Input) else _names(layer.input)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise TrialFailedError("mismatch", f"layer {node.name!r} ({type(layer).__name__}): {error}") from None
    if not layer.trainable:
        raise TrialFailedError("mismatch", f"layer {node.name!r} is not trained")
    return Node(node.name, found, inputs)


def _names(tensors: Any) -> tuple[str, ...]:
    """Names of the layers that made these tensors."""
    found = tensors if isinstance(tensors, list | tuple) else [tensors]
    return tuple(tensor._keras_history.operation.name for tensor in found)


def compute_types(model: Any) -> dict[str, int]:
    """Number of convolutions and dense layers by the type that they compute in."""
    with_kernel = (keras.layers.Conv2D, keras.layers.DepthwiseConv2D, keras.layers.Dense)
    found = Counter(str(layer.compute_dtype) for layer in model.layers if isinstance(layer, with_kernel))
    return dict(sorted(found.items()))


def gather_texts(collective: Collective, text: str) -> tuple[str, ...]:
    """The text of every rank, by rank, cut to `TEXT_BYTES`; all ranks call it together."""
    own = np.zeros((collective.size, TEXT_BYTES), np.float32)
    data = text.encode()[:TEXT_BYTES]
    own[collective.rank, : len(data)] = np.frombuffer(data, np.uint8)
    # Numbers up to 255 are exact in float32; the mean over ranks holds each rank's row once.
    rows = keras.Variable(own, dtype="float32", trainable=False)
    collective.average_variables([rows])
    found = np.rint(np.asarray(keras.ops.convert_to_numpy(rows)) * collective.size).astype(np.uint8)
    return tuple(row.tobytes().rstrip(b"\0").decode(errors="replace") for row in found)
