"""Layer types of architectures: validated values that know their output and weight shapes.

A shape is (height, width, channels) for images and (channels,) for vectors; the batch is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar, Literal

Shape = tuple[int, ...]
Pair = tuple[int, int]
Padding = Literal["same", "valid"]

BATCHNORM_MOMENTUM = 0.9
BATCHNORM_EPSILON = 1e-5
"""Of every batch normalisation, in training and wherever an identity has to undo it."""


class ShapeError(ValueError):
    """A layer cannot take the shapes it is given."""


def _positive(**values: int | Pair) -> None:
    for name, value in values.items():
        numbers = value if isinstance(value, tuple) else (value,)
        if any(number < 1 for number in numbers):
            raise ValueError(f"{name} is {value}; it must be at least 1")


def _image(inputs: tuple[Shape, ...]) -> tuple[int, int, int]:
    (shape,) = inputs
    if len(shape) != 3:
        raise ShapeError(f"needs an input of height x width x channels, got shape {shape}")
    return shape[0], shape[1], shape[2]


def _vector(inputs: tuple[Shape, ...]) -> int:
    (shape,) = inputs
    if len(shape) != 1:
        raise ShapeError(f"needs a flat input of shape (channels,), got shape {shape}")
    return shape[0]


def window_output(size: int, window: int, stride: int, padding: Padding) -> int:
    """Outputs of a sliding window along one axis (TensorFlow's "same" and "valid" conventions).

    Raises ShapeError if a "valid" window is larger than the input.
    """
    if padding == "same":
        return -(-size // stride)
    if window > size:
        raise ShapeError(f'a "valid" window of {window} does not fit an input of {size}')
    return (size - window) // stride + 1


@dataclass(frozen=True, slots=True)
class Layer:
    """Base of all layers.

    The class variables say what a kind of layer is, for every room that needs to know.
    """

    kind: ClassVar[str] = ""
    """Name in JSON and in the operation count."""
    arity: ClassVar[tuple[int, int | None]] = (1, 1)
    """Fewest and most inputs (None: any number)."""
    counts_zero: ClassVar[bool] = False
    """No operations by the rules, such as a copy or a change of shape."""
    keeps_channels: ClassVar[bool] = False
    """Each output channel comes from the input channel of the same number."""
    commutes: ClassVar[bool] = False
    """The order of the inputs does not matter."""
    has_kernel: ClassVar[bool] = False
    """Has a weight matrix, and counts towards the depth of a network."""
    kept_for_backward: ClassVar[bool] = False
    """The backward pass needs its output: the input of a normalisation or of a convolution."""
    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid"}

    def output_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """Shape of the output. Raises ShapeError if the inputs do not fit."""
        return inputs[0]

    def weight_shapes(self, inputs: tuple[Shape, ...]) -> dict[str, Shape]:
        """Shapes of the weights by name, in the order in which Keras keeps them."""
        return {}


@dataclass(frozen=True, slots=True)
class Input(Layer):
    """The network's input: images of height x width x channels."""

    kind: ClassVar[str] = "input"
    counts_zero: ClassVar[bool] = True
    arity: ClassVar[tuple[int, int | None]] = (0, 0)
    height: int
    width: int
    channels: int

    def __post_init__(self) -> None:
        _positive(height=self.height, width=self.width, channels=self.channels)

    def output_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """(height, width, channels)."""
        return (self.height, self.width, self.channels)


@dataclass(frozen=True, slots=True)
class Conv(Layer):
    """Two-dimensional convolution; depthwise with `groups` equal to the input channels.

    `tunable_kernel` marks a convolution whose kernel size is a hyperparameter.
    """

    kind: ClassVar[str] = "conv"
    has_kernel: ClassVar[bool] = True
    kept_for_backward: ClassVar[bool] = True
    filters: int
    kernel: Pair = (3, 3)
    stride: Pair = (1, 1)
    padding: Padding = "same"
    dilation: Pair = (1, 1)
    groups: int = 1
    bias: bool = False
    tunable_kernel: bool = False

    def __post_init__(self) -> None:
        _positive(filters=self.filters, kernel=self.kernel, stride=self.stride)
        _positive(dilation=self.dilation, groups=self.groups)
        if self.filters % self.groups:
            raise ValueError(f"filters is {self.filters}; it must be a multiple of groups ({self.groups})")

    def output_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """(output height, output width, filters)."""
        height, width, _ = _image(inputs)
        window = [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation, strict=True)]
        return (
            window_output(height, window[0], self.stride[0], self.padding),
            window_output(width, window[1], self.stride[1], self.padding),
            self.filters,
        )

    def weight_shapes(self, inputs: tuple[Shape, ...]) -> dict[str, Shape]:
        """Kernel (Kh, Kw, Ci / groups, Co) and, with `bias`, (Co,)."""
        channels = _image(inputs)[2]
        if channels % self.groups:
            raise ShapeError(f"{channels} input channels are not a multiple of groups ({self.groups})")
        shapes: dict[str, Shape] = {"kernel": (*self.kernel, channels // self.groups, self.filters)}
        if self.bias:
            shapes["bias"] = (self.filters,)
        return shapes


@dataclass(frozen=True, slots=True)
class Dense(Layer):
    """Fully connected layer on a flat input."""

    kind: ClassVar[str] = "dense"
    has_kernel: ClassVar[bool] = True
    units: int
    bias: bool = True

    def __post_init__(self) -> None:
        _positive(units=self.units)

    def output_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """(units,)."""
        _vector(inputs)
        return (self.units,)

    def weight_shapes(self, inputs: tuple[Shape, ...]) -> dict[str, Shape]:
        """Kernel (Ci, Co) and, with `bias`, (Co,)."""
        shapes: dict[str, Shape] = {"kernel": (_vector(inputs), self.units)}
        if self.bias:
            shapes["bias"] = (self.units,)
        return shapes


@dataclass(frozen=True, slots=True)
class BatchNorm(Layer):
    """Batch normalisation over the channels.

    `zero_scale` starts the scale at 0, so that a residual block begins as the identity
    (Goyal et al. 2017, section 5.1); it changes the initial weights only.
    """

    kind: ClassVar[str] = "batchnorm"
    keeps_channels: ClassVar[bool] = True
    zero_scale: bool = False

    def weight_shapes(self, inputs: tuple[Shape, ...]) -> dict[str, Shape]:
        """Scale, shift, moving mean and moving variance, each (C,)."""
        channels = (inputs[0][-1],)
        return {"gamma": channels, "beta": channels, "moving_mean": channels, "moving_variance": channels}


@dataclass(frozen=True, slots=True)
class ReLU(Layer):
    """max(x, 0), element by element."""

    kind: ClassVar[str] = "relu"
    keeps_channels: ClassVar[bool] = True
    kept_for_backward: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Softmax(Layer):
    """Softmax over the last axis."""

    kind: ClassVar[str] = "softmax"
    keeps_channels: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Dropout(Layer):
    """Dropout with the given rate in [0, 1)."""

    kind: ClassVar[str] = "dropout"
    counts_zero: ClassVar[bool] = True
    keeps_channels: ClassVar[bool] = True
    rate: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.rate < 1.0:
            raise ValueError(f"rate is {self.rate}; it must be at least 0 and below 1")


@dataclass(frozen=True, slots=True)
class Add(Layer):
    """Element-wise sum of two or more inputs of one shape."""

    kind: ClassVar[str] = "add"
    keeps_channels: ClassVar[bool] = True
    commutes: ClassVar[bool] = True
    arity: ClassVar[tuple[int, int | None]] = (2, None)

    def output_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """The common shape."""
        if len(set(inputs)) != 1:
            raise ShapeError(f"needs inputs of one shape, got {', '.join(map(str, inputs))}")
        return inputs[0]


@dataclass(frozen=True, slots=True)
class Concat(Layer):
    """Concatenation along the channels."""

    kind: ClassVar[str] = "concat"
    counts_zero: ClassVar[bool] = True
    arity: ClassVar[tuple[int, int | None]] = (2, None)

    def output_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """The common shape with the channels summed."""
        if len({shape[:-1] for shape in inputs}) != 1:
            raise ShapeError(f"needs inputs equal but for channels, got {', '.join(map(str, inputs))}")
        return (*inputs[0][:-1], sum(shape[-1] for shape in inputs))


@dataclass(frozen=True, slots=True)
class MaxPool(Layer):
    """Max-pooling over a window."""

    kind: ClassVar[str] = "maxpool"
    keeps_channels: ClassVar[bool] = True
    window: Pair = (2, 2)
    stride: Pair = (2, 2)
    padding: Padding = "same"

    def __post_init__(self) -> None:
        _positive(window=self.window, stride=self.stride)

    def output_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """(output height, output width, channels)."""
        height, width, channels = _image(inputs)
        return (
            window_output(height, self.window[0], self.stride[0], self.padding),
            window_output(width, self.window[1], self.stride[1], self.padding),
            channels,
        )


@dataclass(frozen=True, slots=True)
class GlobalAveragePool(Layer):
    """Mean over height and width."""

    kind: ClassVar[str] = "globalpool"
    keeps_channels: ClassVar[bool] = True

    def output_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """(channels,)."""
        return (_image(inputs)[2],)


@dataclass(frozen=True, slots=True)
class Flatten(Layer):
    """All elements in one axis."""

    kind: ClassVar[str] = "flatten"
    counts_zero: ClassVar[bool] = True

    def output_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """(elements,)."""
        return (prod(inputs[0]),)


@dataclass(frozen=True, slots=True)
class ZeroPad(Layer):
    """Zeros around the image: (top, bottom) and (left, right)."""

    kind: ClassVar[str] = "zeropad"
    counts_zero: ClassVar[bool] = True
    keeps_channels: ClassVar[bool] = True
    vertical: Pair = (0, 0)
    horizontal: Pair = (0, 0)

    def __post_init__(self) -> None:
        if min(*self.vertical, *self.horizontal) < 0:
            raise ValueError(f"padding {self.vertical}, {self.horizontal} must not be negative")

    def output_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """(padded height, padded width, channels)."""
        height, width, channels = _image(inputs)
        return (height + sum(self.vertical), width + sum(self.horizontal), channels)


LAYER_TYPES: dict[str, type[Layer]] = {
    layer.kind: layer
    for layer in (
        Input, Conv, Dense, BatchNorm, ReLU, Softmax, Dropout, Add, Concat,
        MaxPool, GlobalAveragePool, Flatten, ZeroPad,
    )
}  # fmt: skip
"""Every layer type by its `kind`; the reader of architecture files knows exactly these."""
