"""Layers that work element by element, and softmax."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from aiperf.network.layers.contract import Layer, Shape, ShapeError


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
