"""Pooling over windows and over whole images and volumes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from aiperf.network.layers.contract import Extent, Layer, Padding, Shape, any_grid, grid, one_rank, positive, windows


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
