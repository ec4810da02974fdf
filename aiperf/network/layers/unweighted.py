"""Layers without weights: inputs, changes of shape, functions of elements, pooling and regions."""

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from aiperf.network.layers.contract import (
    Extent,
    Layer,
    Padding,
    Pair,
    Shape,
    ShapeError,
    any_grid,
    grid,
    one_rank,
    positive,
    windows,
)


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
        positive(height=self.height, width=self.width, channels=self.channels)

    def output_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """(height, width, channels)."""
        return (self.height, self.width, self.channels)


@dataclass(frozen=True, slots=True)
class InputArray(Layer):
    """The network's input of any other shape: a volume, a vector, or features of regions."""

    kind: ClassVar[str] = "inputarray"
    counts_zero: ClassVar[bool] = True
    arity: ClassVar[tuple[int, int | None]] = (0, 0)
    shape: Shape

    def __post_init__(self) -> None:
        positive(shape=self.shape)
        if not 1 <= len(self.shape) <= 4:
            raise ValueError(f"shape {self.shape} must have one to four axes")

    def output_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """`shape`."""
        return self.shape


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
class Flatten(Layer):
    """All elements in one axis."""

    kind: ClassVar[str] = "flatten"
    counts_zero: ClassVar[bool] = True

    def output_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """(elements,)."""
        return (prod(inputs[0]),)


@dataclass(frozen=True, slots=True)
class Reshape(Layer):
    """The same elements in another shape."""

    kind: ClassVar[str] = "reshape"
    counts_zero: ClassVar[bool] = True
    shape: Shape

    def __post_init__(self) -> None:
        positive(shape=self.shape)

    def output_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """`shape`. Raises ShapeError if it has another number of elements."""
        if prod(inputs[0]) != prod(self.shape):
            raise ShapeError(f"{inputs[0]} does not have the elements of {self.shape}")
        return self.shape


@dataclass(frozen=True, slots=True)
class Upsample(Layer):
    """Nearest neighbours: every pixel `factors` times along each axis of an image."""

    kind: ClassVar[str] = "upsample"
    counts_zero: ClassVar[bool] = True
    keeps_channels: ClassVar[bool] = True
    factors: Pair = (2, 2)

    def __post_init__(self) -> None:
        positive(factors=self.factors)

    def output_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """(height, width, channels), magnified."""
        height, width, channels = grid(inputs, 2)
        return (height * self.factors[0], width * self.factors[1], channels)


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
        height, width, channels = grid(inputs, 2)
        return (height + sum(self.vertical), width + sum(self.horizontal), channels)


@dataclass(frozen=True, slots=True)
class ReLU(Layer):
    """max(x, 0), element by element."""

    kind: ClassVar[str] = "relu"
    keeps_channels: ClassVar[bool] = True
    kept_for_backward: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class LeakyReLU(Layer):
    """x for positive x, else `slope` times x, element by element."""

    kind: ClassVar[str] = "leakyrelu"
    keeps_channels: ClassVar[bool] = True
    kept_for_backward: ClassVar[bool] = True
    slope: float

    def __post_init__(self) -> None:
        if not 0.0 < self.slope < 1.0:
            raise ValueError(f"slope is {self.slope}; it must be above 0 and below 1")


@dataclass(frozen=True, slots=True)
class Sigmoid(Layer):
    """1 / (1 + exp(-x)), element by element."""

    kind: ClassVar[str] = "sigmoid"
    keeps_channels: ClassVar[bool] = True
    kept_for_backward: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Tanh(Layer):
    """Hyperbolic tangent, element by element."""

    kind: ClassVar[str] = "tanh"
    keeps_channels: ClassVar[bool] = True
    kept_for_backward: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Scale(Layer):
    """Multiplication by a constant."""

    kind: ClassVar[str] = "scale"
    keeps_channels: ClassVar[bool] = True
    factor: float


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
class _WindowPool(Layer):
    """Pooling over a window of an image or a volume."""

    keeps_channels: ClassVar[bool] = True
    window: Extent = (2, 2)
    stride: Extent = (2, 2)
    padding: Padding = "same"

    def __post_init__(self) -> None:
        positive(window=self.window, stride=self.stride)
        one_rank(window=self.window, stride=self.stride)

    def output_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """Output sizes along the axes, and channels."""
        sizes = grid(inputs, len(self.window))
        return (*windows(sizes[:-1], self.window, self.stride, self.padding), sizes[-1])


@dataclass(frozen=True, slots=True)
class MaxPool(_WindowPool):
    """Max-pooling over a window of an image or a volume."""

    kind: ClassVar[str] = "maxpool"


@dataclass(frozen=True, slots=True)
class AveragePool(_WindowPool):
    """Average pooling over a window of an image or a volume."""

    kind: ClassVar[str] = "averagepool"


@dataclass(frozen=True, slots=True)
class GlobalAveragePool(Layer):
    """Mean over all axes but the channels."""

    kind: ClassVar[str] = "globalpool"
    keeps_channels: ClassVar[bool] = True

    def output_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """(channels,)."""
        return (any_grid(inputs)[-1],)


@dataclass(frozen=True, slots=True)
class RoiAlign(Layer):
    """Features of regions on a grid of `bins` x `bins` (He et al. 2017, section 3).

    Its inputs are an image, one cell of which covers `stride` x `stride` pixels, and boxes
    (regions, 4) in pixels: y and x of the upper left corner, y and x of the lower right one. Each
    bin is the mean of `samples` x `samples` points, interpolated between four cells.
    """

    kind: ClassVar[str] = "roialign"
    arity: ClassVar[tuple[int, int | None]] = (2, 2)
    bins: int = 7
    samples: int = 2
    stride: int = 1

    def __post_init__(self) -> None:
        positive(bins=self.bins, samples=self.samples, stride=self.stride)

    @property
    def window(self) -> Pair:
        """The samples of a bin."""
        return (self.samples, self.samples)

    def output_shape(self, inputs: tuple[Shape, ...]) -> Shape:
        """(regions, bins, bins, channels). Raises ShapeError."""
        channels = grid(inputs[:1], 2)[-1]
        boxes = inputs[1]
        if len(boxes) != 2 or boxes[1] != 4:
            raise ShapeError(f"needs boxes of shape (regions, 4), got {boxes}")
        return (boxes[0], self.bins, self.bins, channels)
