"""The forward pass of a Keras model in PyTorch's own operations, on the model's variables.

Keras computes batch normalisation on PyTorch in five passes over the images, and transposes every
kernel twice a step. Here normalisation is PyTorch's fused one. Images and kernels lie in memory
with the channels innermost, in which convolutions are fastest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import torch
from torch.nn import functional

Images = Any
"""A tensor (N, C, H, W) in the memory format `channels_last`, or (N, C)."""


class Network:
    """Computes what the model computes, up to the input of its final softmax if it has one.

    Raises KeyError if the model has a layer of a class that is not in `_LAYERS`.
    """

    def __init__(self, model: Any) -> None:
        last = model.output._keras_history.operation
        self.gives_logits = isinstance(last, keras.layers.Softmax)
        self._steps = [
            (layer, _LAYERS[type(layer)], _names_of_inputs(layer))
            for layer in model.layers
            if not isinstance(layer, keras.layers.InputLayer) and not (self.gives_logits and layer is last)
        ]
        self._input = next(layer.name for layer in model.layers if isinstance(layer, keras.layers.InputLayer))
        self._output = _names_of_inputs(last)[0] if self.gives_logits else last.name
        self._moving: list[Any] = []
        self._batch: list[Any] = []
        for layer, _, _ in self._steps:
            if isinstance(layer, keras.layers.Conv2D | keras.layers.DepthwiseConv2D):
                _lay_channels_innermost(layer.kernel)

    def lay_out(self, variables: Sequence[Any]) -> None:
        """Give variables of four axes, such as momenta of kernels, the layout of kernels."""
        for variable in variables:
            if len(variable.shape) == 4:
                _lay_channels_innermost(variable)

    def __call__(self, images: Any, training: bool) -> Any:
        """Outputs (N, classes) in float32 of images (N, H, W, C); moving statistics are updated."""
        values = {self._input: images.permute(0, 3, 1, 2)}
        self._moving, self._batch = [], []
        for layer, compute, inputs in self._steps:
            dtype = getattr(torch, layer.compute_dtype)
            given = [values[name].to(dtype) for name in inputs]
            values[layer.name] = compute(self, layer, given, training)
        if self._moving:
            with torch.no_grad():
                torch._foreach_lerp_(self._moving, self._batch, 1 - _momentum(self._steps))
        return values[self._output].float()

    def normalise(self, layer: Any, images: Images, training: bool) -> Images:
        """Normalise; in training by the batch's own statistics, which are kept for the moving ones.

        Ioffe and Szegedy 2015. The variance is that of the batch (divided by N), as in Keras.
        """
        scale, shift = layer.gamma.value, layer.beta.value
        mean, variance = layer.moving_mean.value, layer.moving_variance.value
        if not training:
            return functional.batch_norm(images, mean, variance, scale, shift, False, 0.0, layer.epsilon)
        out, own_mean, inverse = torch.native_batch_norm(images, scale, shift, None, None, True, 0.0, layer.epsilon)
        with torch.no_grad():
            self._moving += [mean, variance]
            self._batch += [own_mean, inverse.pow(-2) - layer.epsilon]
        return out


def _momentum(steps: Sequence[tuple[Any, Any, Any]]) -> float:
    return next(float(layer.momentum) for layer, _, _ in steps if isinstance(layer, keras.layers.BatchNormalization))


def _names_of_inputs(layer: Any) -> list[str]:
    inputs = layer.input if isinstance(layer.input, list | tuple) else [layer.input]
    return [tensor._keras_history.operation.name for tensor in inputs]


def _lay_channels_innermost(variable: Any) -> None:
    """Lay a kernel (H, W, I, O) out in memory as O, H, W, I. Its shape stays."""
    value = variable.value
    value.data = value.data.permute(3, 0, 1, 2).contiguous().permute(1, 2, 3, 0)


def _same(size: int, window: int, stride: int, dilation: int = 1) -> tuple[int, int]:
    """Zeros before and after an axis, as TensorFlow's padding "SAME" has them."""
    total = max((-(-size // stride) - 1) * stride + (window - 1) * dilation + 1 - size, 0)
    return total // 2, total - total // 2


def _convolve(layer: Any, images: Images, kernel: Any, groups: int) -> Images:
    bias = layer.bias.value.to(images.dtype) if layer.use_bias else None
    padding = (0, 0)
    if layer.padding == "same":
        rows, columns = (
            _same(images.shape[2 + axis], layer.kernel_size[axis], layer.strides[axis], layer.dilation_rate[axis])
            for axis in (0, 1)
        )
        if rows[0] == rows[1] and columns[0] == columns[1]:
            padding = (rows[0], columns[0])
        else:
            images = functional.pad(images, (*columns, *rows))
    return functional.conv2d(images, kernel.to(images.dtype), bias, layer.strides, padding, layer.dilation_rate, groups)


def _conv(network: Network, layer: Any, inputs: list[Any], training: bool) -> Images:
    return _convolve(layer, inputs[0], layer.kernel.value.permute(3, 2, 0, 1), layer.groups)


def _depthwise(network: Network, layer: Any, inputs: list[Any], training: bool) -> Images:
    height, width, channels, multiplier = layer.kernel.shape
    kernel = layer.kernel.value.permute(2, 3, 0, 1).reshape(channels * multiplier, 1, height, width)
    return _convolve(layer, inputs[0], kernel, channels)


def _dense(network: Network, layer: Any, inputs: list[Any], training: bool) -> Any:
    dtype = inputs[0].dtype
    bias = layer.bias.value.to(dtype) if layer.use_bias else None
    return functional.linear(inputs[0], layer.kernel.value.to(dtype).T, bias)


def _max_pool(network: Network, layer: Any, inputs: list[Any], training: bool) -> Images:
    images = inputs[0]
    if layer.padding == "same":
        rows, columns = (_same(images.shape[2 + axis], layer.pool_size[axis], layer.strides[axis]) for axis in (0, 1))
        images = functional.pad(images, (*columns, *rows), value=float("-inf"))
    return functional.max_pool2d(images, layer.pool_size, layer.strides)


def _zero_pad(network: Network, layer: Any, inputs: list[Any], training: bool) -> Images:
    rows, columns = layer.padding
    return functional.pad(inputs[0], (*columns, *rows))


def _add(network: Network, layer: Any, inputs: list[Any], training: bool) -> Any:
    total = inputs[0]
    for other in inputs[1:]:
        total = total + other
    return total


def _flatten(network: Network, layer: Any, inputs: list[Any], training: bool) -> Any:
    images = inputs[0]
    return (images.permute(0, 2, 3, 1) if images.ndim == 4 else images).flatten(1)


def _dropout(network: Network, layer: Any, inputs: list[Any], training: bool) -> Any:
    if not training or not layer.rate:
        return inputs[0]
    # The layer's own generator is a variable: a resumed training draws the masks that follow.
    # Keras's dropout would take PyTorch's generator, which no checkpoint has.
    kept = keras.random.uniform(tuple(inputs[0].shape), seed=layer.seed_generator) >= layer.rate
    return inputs[0] * kept.to(inputs[0].dtype) / (1 - layer.rate)


def _softmax(network: Network, layer: Any, inputs: list[Any], training: bool) -> Any:
    return functional.softmax(inputs[0], dim=1)


_LAYERS: dict[type, Callable[[Network, Any, list[Any], bool], Any]] = {
    keras.layers.Conv2D: _conv,
    keras.layers.DepthwiseConv2D: _depthwise,
    keras.layers.BatchNormalization: lambda network, layer, inputs, training: network.normalise(
        layer, inputs[0], training
    ),
    keras.layers.Dense: _dense,
    keras.layers.MaxPooling2D: _max_pool,
    keras.layers.ZeroPadding2D: _zero_pad,
    keras.layers.Dropout: _dropout,
    keras.layers.ReLU: lambda network, layer, inputs, training: functional.relu(inputs[0]),
    keras.layers.Softmax: _softmax,
    keras.layers.Flatten: _flatten,
    keras.layers.GlobalAveragePooling2D: lambda network, layer, inputs, training: inputs[0].mean((2, 3)),
    keras.layers.Add: _add,
    keras.layers.Concatenate: lambda network, layer, inputs, training: torch.cat(inputs, 1),
}
"""Operations of exactly the classes that AIPerf's own networks are built of."""
