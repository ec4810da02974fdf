"""Layers that cut regions out of an image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from aiperf.network.layers.contract import Layer, Pair, Shape, ShapeError, grid, positive


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
