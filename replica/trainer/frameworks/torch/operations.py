"""PyTorch's own operation for each class of Keras layer in AIPerf's networks.

Images are tensors (N, C, H, W) with the channels innermost in memory, in which convolutions are
fastest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import torch
from torch.nn import functional

from replica.trainer.frameworks.torch.parameters import CONVOLUTION, DEPTHWISE, Parameters

Tensor = Any
Compute = Callable[..., Tensor]
"""Function that computes a layer's output from `training` and its inputs."""
Edges = tuple[tuple[int, int], tuple[int, int]]
"""Zeros around images: rows above and below, columns left and right."""

NO_EDGES: Edges = ((0, 0), (0, 0))


class NotCoveredError(Exception):
    """A layer that these operations do not cover: the model computes by Keras's own layers."""


class Statistics:
    """The moving statistics of a network, and those of the batch that they follow after a pass."""

    def __init__(self) -> None:
        self._momenta: set[float] = set()
        self._moving: tuple[list[Tensor], list[Tensor]] = [], []
        self._epsilons: list[float] = []
        self._batch: list[tuple[Tensor, Tensor]] = []

    def add(self, layer: Any) -> None:
        """Take in a layer, in the order of the passes. Raises NotCoveredError."""
        self._momenta.add(float(layer.momentum))
        if len(self._momenta) > 1 or not (layer.scale and layer.center):
            raise NotCoveredError(f"{layer.name}: a normalisation without scale or shift, or of another momentum")
        self._epsilons.append(layer.epsilon)
        for moving, variable in zip(self._moving, (layer.moving_mean, layer.moving_variance), strict=True):
            moving.append(variable.value.detach())

    def keep(self, mean: Tensor, inverse: Tensor) -> None:
        """Keep a layer's mean and inverse standard deviation, with epsilon under its root."""
        self._batch.append((mean.detach(), inverse.detach()))

    def follow(self) -> None:
        """Move the statistics. The variance is that of the batch, divided by N, as in Keras.

        It follows from the kept inverse deviation, less epsilon, for all layers at once: a few
        operations instead of some for each of hundreds of layers.
        """
        if not self._batch:
            return
        (momentum,) = self._momenta
        means, inverses = map(list, zip(*self._batch, strict=True))
        self._batch = []
        with torch.no_grad():
            variances = torch._foreach_pow(inverses, -2.0)
            torch._foreach_sub_(variances, self._epsilons)
            torch._foreach_lerp_([*self._moving[0], *self._moving[1]], [*means, *variances], 1 - momentum)


@dataclass(frozen=True, slots=True)
class Place:
    """A layer's place in its network, for the operation that is made for it."""

    parameters: Parameters
    statistics: Statistics
    edges: Edges = NO_EDGES
    """Zeros around the images, which a layer in front leaves to this one."""
    owned: tuple[bool, ...] = ()
    """True for each input that no other step reads, so that it may be overwritten."""


def _dtype(layer: Any) -> Any:
    return getattr(torch, layer.compute_dtype)


def _same(size: int, window: int, stride: int, dilation: int = 1) -> tuple[int, int]:
    """Zeros before and after an axis, as TensorFlow's padding "SAME" has them."""
    total = max((-(-size // stride) - 1) * stride + (window - 1) * dilation + 1 - size, 0)
    return total // 2, total - total // 2


def _edges(layer: Any, window: Sequence[int], dilation: Sequence[int] = (1, 1)) -> Edges:
    if layer.padding != "same":
        return NO_EDGES
    sizes = layer.input.shape[1:3]
    rows, columns = (
        _same(size, *settings) for size, *settings in zip(sizes, window, layer.strides, dilation, strict=True)
    )
    return rows, columns


def _convolve(layer: Any, place: Place, kernel: Tensor, groups: int) -> Compute:
    bias = place.parameters.add(layer.bias, _dtype(layer)) if layer.use_bias else None
    inner = _edges(layer, layer.kernel_size, layer.dilation_rate)
    rows, columns = place.edges if inner == NO_EDGES else inner
    stride, dilation = tuple(layer.strides), tuple(layer.dilation_rate)
    if rows[0] == rows[1] and columns[0] == columns[1]:
        padding = rows[0], columns[0]
        return lambda training, images: functional.conv2d(images, kernel, bias, stride, padding, dilation, groups)
    around = (*columns, *rows)
    return lambda training, images: functional.conv2d(
        functional.pad(images, around), kernel, bias, stride, 0, dilation, groups
    )


def _conv(layer: Any, place: Place) -> Compute:
    kernel = place.parameters.add(layer.kernel, _dtype(layer), CONVOLUTION)
    return _convolve(layer, place, kernel, layer.groups)


def _depthwise(layer: Any, place: Place) -> Compute:
    kernel = place.parameters.add(layer.kernel, _dtype(layer), DEPTHWISE)
    return _convolve(layer, place, kernel, layer.kernel.shape[2])


def _batch_norm(layer: Any, place: Place) -> Compute:
    """Normalise; in training by the batch's own statistics (Ioffe and Szegedy 2015)."""
    scale, shift = (place.parameters.add(variable, torch.float32) for variable in (layer.gamma, layer.beta))
    mean, variance = layer.moving_mean.value.detach(), layer.moving_variance.value.detach()
    epsilon, statistics = float(layer.epsilon), place.statistics
    statistics.add(layer)

    def compute(training: bool, images: Tensor) -> Tensor:
        if not training:
            return functional.batch_norm(images, mean, variance, scale, shift, False, 0.0, epsilon)
        # The function behind `functional.batch_norm`, which keeps the batch's moments to itself: it
        # takes cuDNN's kernel or PyTorch's own.
        out, own_mean, inverse, _, _ = torch._batch_norm_impl_index(
            images, scale, shift, None, None, True, 0.0, epsilon, torch.backends.cudnn.enabled
        )
        statistics.keep(own_mean, inverse)
        return out

    return compute


def _dense(layer: Any, place: Place) -> Compute:
    kernel = place.parameters.add(layer.kernel, _dtype(layer))
    if not layer.use_bias:
        return lambda training, values: values @ kernel
    bias = place.parameters.add(layer.bias, _dtype(layer))
    return lambda training, values: torch.addmm(bias, values, kernel)


def _max_pool(layer: Any, place: Place) -> Compute:
    window, stride = tuple(layer.pool_size), tuple(layer.strides)
    rows, columns = _edges(layer, window)
    if rows[0] == columns[0] == 0 and rows[1] < stride[0] and columns[1] < stride[1]:
        # ceil_mode lets windows reach over the far edges, as TensorFlow's padding does, without a
        # padded copy of the images.
        return lambda training, images: functional.max_pool2d(images, window, stride, ceil_mode=True)
    around = (*columns, *rows)
    return lambda training, images: functional.max_pool2d(
        functional.pad(images, around, value=float("-inf")), window, stride
    )


def _zero_pad(layer: Any, place: Place) -> Compute:
    rows, columns = layer.padding
    return lambda training, images: functional.pad(images, (*columns, *rows))


def _relu(layer: Any, place: Place) -> Compute:
    if place.owned[0]:
        return lambda training, values: torch.relu_(values)
    return lambda training, values: torch.relu(values)


def _add(layer: Any, place: Place) -> Compute:
    first = place.owned.index(True) if any(place.owned) else -1

    def compute(training: bool, *inputs: Tensor) -> Tensor:
        others = list(inputs)
        total = others.pop(first) if first >= 0 else others.pop(0) + others.pop(0)
        for other in others:
            total = total.add_(other)
        return total

    return compute


def _flatten(training: bool, images: Tensor) -> Tensor:
    return (images.permute(0, 2, 3, 1) if images.ndim == 4 else images).flatten(1)


class Draws:
    """The numbers from 0 to 1 that `keras.random.uniform` draws by a layer's own generator.

    Its state is a variable: a resumed training draws the masks that follow. Keras reads it from the
    device at each draw, which waits for all steps under way; here only after something else has
    set it.
    """

    def __init__(self, generator: Any) -> None:
        self._state = generator.state
        self._version = -1
        self._next = 0

    def draw(self, like: Tensor) -> Tensor:
        """Draw float32 numbers, as many as a tensor has, on its device."""
        state = self._state.value
        if state._version != self._version:
            self._next = int(state.sum())
        generator = torch.Generator(device=like.device).manual_seed(self._next & 0xFFFFFFFF)
        with torch.no_grad():
            state[1].add_(1)
        self._next, self._version = self._next + 1, state._version
        return torch.rand(like.shape, generator=generator, device=like.device)


def _dropout(layer: Any, place: Place) -> Compute:
    draws = Draws(layer.seed_generator) if layer.rate else None

    def compute(training: bool, values: Tensor) -> Tensor:
        if not training or draws is None:
            return values
        # Keras's dropout would take PyTorch's generator, which no checkpoint has.
        kept = draws.draw(values) >= layer.rate
        return values * kept.to(values.dtype) / (1 - layer.rate)

    return compute


def _plain(compute: Compute) -> Callable[[Any, Place], Compute]:
    return lambda layer, place: compute


OPERATIONS: dict[type, Callable[[Any, Place], Compute]] = {
    keras.layers.Conv2D: _conv,
    keras.layers.DepthwiseConv2D: _depthwise,
    keras.layers.BatchNormalization: _batch_norm,
    keras.layers.Dense: _dense,
    keras.layers.MaxPooling2D: _max_pool,
    keras.layers.ZeroPadding2D: _zero_pad,
    keras.layers.Dropout: _dropout,
    keras.layers.ReLU: _relu,
    keras.layers.Softmax: _plain(lambda training, values: functional.softmax(values, dim=1)),
    keras.layers.Flatten: _plain(_flatten),
    keras.layers.GlobalAveragePooling2D: _plain(lambda training, images: images.mean((2, 3))),
    keras.layers.Add: _add,
    keras.layers.Concatenate: _plain(lambda training, *inputs: torch.cat(inputs, 1)),
}
"""Operations of exactly the classes that AIPerf's own networks are built of."""

FRESH = (
    keras.layers.Conv2D,
    keras.layers.DepthwiseConv2D,
    keras.layers.BatchNormalization,
    keras.layers.Add,
)
"""Layers whose output is a tensor of its own, which their gradients do not need."""
