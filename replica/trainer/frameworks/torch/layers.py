"""PyTorch's own operation for each class of Keras layer in AIPerf's networks.

Images are tensors (N, C, H, W) with the channels innermost in memory, in which convolutions are
fastest.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import torch
from torch.nn import functional

from replica.trainer.frameworks.torch.parameters import CONVOLUTION, DEPTHWISE, Parameters
from replica.trainer.frameworks.torch.regions import Edges, Normalise, Pad, Part, Pool, Rectify, Sum

Tensor = Any
Compute = Callable[..., Tensor]
"""Function that computes a layer's output from `training` and its inputs."""

NO_EDGES: Edges = ((0, 0), (0, 0))


class NotCoveredError(Exception):
    """A layer that these operations do not cover: the model computes by Keras's own layers."""


class Statistics:
    """The moving statistics of a network, and those of the batch that they follow after a pass."""

    def __init__(self) -> None:
        self._momenta: set[float] = set()
        self._moving: tuple[list[Tensor], list[Tensor]] = [], []
        self._epsilons: list[float] = []
        self._batch: dict[int, tuple[Tensor, Tensor]] = {}

    def add(self, layer: Any) -> int:
        """Take in a layer; give its number. Raises NotCoveredError."""
        self._momenta.add(float(layer.momentum))
        if len(self._momenta) > 1 or not (layer.scale and layer.center):
            raise NotCoveredError(f"{layer.name}: a normalisation without scale or shift, or of another momentum")
        self._epsilons.append(layer.epsilon)
        for moving, variable in zip(self._moving, (layer.moving_mean, layer.moving_variance), strict=True):
            moving.append(variable.value.detach())
        return len(self._epsilons) - 1

    def keep(self, number: int, mean: Tensor, inverse: Tensor) -> None:
        """Keep a layer's mean and inverse standard deviation, with epsilon under its root."""
        self._batch[number] = mean, inverse

    def forget(self) -> None:
        """Drop what was kept."""
        self._batch = {}

    def follow(self) -> None:
        """Move the statistics. The variance is that of the batch, divided by N, as in Keras.

        It follows from the kept inverse deviation, less epsilon, for all layers at once: a few
        operations instead of some for each of hundreds of layers.
        """
        if not self._batch:
            return
        (momentum,) = self._momenta
        means, inverses = map(list, zip(*(self._batch[number] for number in sorted(self._batch)), strict=True))
        self._batch = {}
        with torch.no_grad():
            # inverse = 1 / sqrt(variance + epsilon), hence variance = inverse^-2 - epsilon.
            variances = torch._foreach_pow(inverses, -2.0)
            torch._foreach_sub_(variances, self._epsilons)
            torch._foreach_lerp_([*self._moving[0], *self._moving[1]], [*means, *variances], 1 - momentum)


class Draws:
    """The numbers from 0 to 1 that `keras.random.uniform` draws by a layer's own generator.

    Its state is a variable: a resumed training draws the masks that follow. Keras reads it from the
    device at each draw, which waits for all steps under way; here only after something else has
    set it.
    """

    def __init__(self, generator: Any) -> None:
        self._state = generator.state
        self._version = -1
        self._next = self._seed = 0
        self.renew()

    def renew(self) -> None:
        """Draw from another generator: a capture that fails may leave one that refuses to draw."""
        self.generator = torch.Generator(device=self._state.value.device)
        self.generator.manual_seed(self._seed)

    def seed(self) -> None:
        """Seed the generator for the next draw: by the host, outside of what a graph replays."""
        state = self._state.value
        if state._version != self._version:
            # The sum of both words, as Keras makes a seed of them (`torch_seed_generator`).
            self._next, self._version = int(state.sum()), state._version
        self._seed = self._next & 0xFFFFFFFF
        self.generator.manual_seed(self._seed)
        self._next += 1

    def draw(self, like: Tensor) -> Tensor:
        """Draw float32 numbers, as many as a tensor has, on its device, after `seed`."""
        state = self._state.value
        with torch.no_grad():
            # Keras's generator counts its draws here: on the device, so that a replayed graph
            # counts as well, and a checkpoint has the number.
            state[1].add_(1)
        # A change of its own: only another's makes `seed` read the device.
        self._version = state._version
        return torch.rand(like.shape, generator=self.generator, device=like.device)


@dataclass(frozen=True, slots=True)
class Place:
    """A layer's place in its network, for the operation that is made for it."""

    parameters: Parameters
    statistics: Statistics
    edges: Edges = NO_EDGES
    """Zeros around the images, which a layer in front leaves to this one."""
    owned: tuple[bool, ...] = ()
    """True for each input that no other step reads, so that it may be overwritten."""
    draws: list[Draws] = field(default_factory=list)
    """Takes in those of a dropout."""


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


def _dense(layer: Any, place: Place) -> Compute:
    kernel = place.parameters.add(layer.kernel, _dtype(layer))
    if not layer.use_bias:
        return lambda training, values: values @ kernel
    bias = place.parameters.add(layer.bias, _dtype(layer))
    return lambda training, values: torch.addmm(bias, values, kernel)


def _flatten(training: bool, images: Tensor) -> Tensor:
    # In Keras's order, channels last: it is that of the rows of the kernel behind it.
    return (images.permute(0, 2, 3, 1) if images.ndim == 4 else images).flatten(1)


def _dropout(layer: Any, place: Place) -> Compute:
    draws = Draws(layer.seed_generator) if layer.rate else None
    if draws is not None:
        place.draws.append(draws)

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
    keras.layers.Dense: _dense,
    keras.layers.Dropout: _dropout,
    keras.layers.Softmax: _plain(lambda training, values: functional.softmax(values, dim=1)),
    keras.layers.Flatten: _plain(_flatten),
    keras.layers.GlobalAveragePooling2D: _plain(lambda training, images: images.mean((2, 3))),
    keras.layers.Concatenate: _plain(lambda training, *inputs: torch.cat(inputs, 1)),
}
"""Operations of classes that AIPerf's own networks are built of; with `PARTS`, of exactly these."""


@dataclass(frozen=True, slots=True)
class Light:
    """A layer that does little arithmetic: a part of a region."""

    part: Part
    tensors: tuple[Tensor, ...] = ()
    number: int | None = None
    """That of a normalisation (`Statistics.add`)."""


def _normalise(layer: Any, place: Place) -> Light:
    scale, shift = (place.parameters.add(variable, torch.float32) for variable in (layer.gamma, layer.beta))
    tensors = scale, shift, layer.moving_mean.value.detach(), layer.moving_variance.value.detach()
    return Light(Normalise(float(layer.epsilon)), tensors, place.statistics.add(layer))


def _pool(layer: Any, place: Place) -> Light:
    window = tuple(layer.pool_size)
    return Light(Pool(window, tuple(layer.strides), _edges(layer, window)))


PARTS: dict[type, Callable[[Any, Place], Light]] = {
    keras.layers.BatchNormalization: _normalise,
    keras.layers.MaxPooling2D: _pool,
    keras.layers.ZeroPadding2D: lambda layer, place: Light(Pad(tuple(map(tuple, layer.padding)))),  # type: ignore[arg-type]
    keras.layers.ReLU: lambda layer, place: Light(Rectify(place.owned[0])),
    keras.layers.Add: lambda layer, place: Light(Sum(place.owned.index(True) if any(place.owned) else -1)),
}
"""Parts of regions by the classes of their layers."""

FRESH = (
    keras.layers.Conv2D,
    keras.layers.DepthwiseConv2D,
    keras.layers.BatchNormalization,
    keras.layers.Add,
)
"""Layers whose output is a tensor of its own, which their gradients do not need."""
