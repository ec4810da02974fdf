"""Layers that compute nothing: inputs, and changes of shape."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from aiperf.network.layers.contract import Layer, Pair, Shape, ShapeError, grid, positive


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
