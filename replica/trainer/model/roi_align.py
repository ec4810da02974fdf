"""RoI-align as a Keras layer, on any framework."""

from dataclasses import dataclass
from typing import Any

import keras
from keras import ops


class RoiAligned(keras.layers.Layer):  # type: ignore[misc]
    """The layer of features of boxes: (N, H, W, C) and (N, R, 4) to (N, R, bins, bins, C).

    He et al. 2017, section 3: no coordinate is rounded. A box is y and x of its upper left corner,
    then of its lower right one, in pixels; a cell covers `stride` pixels, and its value is that at
    its centre. Each bin is the mean of `samples` x `samples` points at even distances, interpolated
    bilinearly; points beyond the outermost centres take the value of the nearest. Gradients go to
    the features alone.
    """

    def __init__(self, bins: int = 7, samples: int = 2, stride: int = 1, **settings: Any) -> None:
        # Coordinates need all their bits, whatever the precision of the features.
        super().__init__(autocast=False, **settings)
        self.bins = bins
        self.samples = samples
        self.stride = stride

    def get_config(self) -> dict[str, Any]:
        """The arguments of the layer."""
        return {**super().get_config(), "bins": self.bins, "samples": self.samples, "stride": self.stride}

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        """The output's shape: (N, R, bins, bins, C)."""
        features, boxes = input_shape
        return (boxes[0], boxes[1], self.bins, self.bins, features[-1])

    def call(self, inputs: Any) -> Any:
        """Interpolate every sample of every bin, and average."""
        features, boxes = inputs
        features = ops.cast(features, self.compute_dtype)
        _, height, width, channels = features.shape
        boxes = ops.stop_gradient(ops.cast(boxes, "float32")) / self.stride
        cells = ops.reshape(features, (-1, height * width, channels))
        return align(cells, boxes, Grid(height, width, 0), self.bins, self.samples)


@dataclass(frozen=True, slots=True)
class Grid:
    """The place of each region's image among the cells: numbers, or tensors (N, R) int32."""

    height: Any
    width: Any
    start: Any
    """Number of the first of its cells."""


def align(cells: Any, boxes: Any, grid: Grid, bins: int, samples: int) -> Any:
    """The features of boxes (N, R, 4), in cells of their images: (N, R, bins, bins, C).

    `cells` (N, L, C) are one or more images of each example, row by row, one after the other.
    """
    _, length, channels = cells.shape
    height, width, start = (_column(each) for each in (grid.height, grid.width, grid.start))
    rows = _axis(boxes[..., 0], boxes[..., 2], height, bins * samples)
    columns = _axis(boxes[..., 1], boxes[..., 3], width, bins * samples)
    flat = ops.reshape(cells, (-1, channels))
    first = ops.expand_dims(ops.arange(ops.shape(cells)[0], dtype="int32") * length, (1, 2, 3))
    first = first + (start if isinstance(start, int) else start[..., None])
    across = width if isinstance(width, int) else width[..., None]
    total: Any = 0.0
    for row, row_weight in rows:
        for column, column_weight in columns:
            index = first + row[..., :, None] * across + column[..., None, :]
            weight = ops.cast(row_weight[..., :, None] * column_weight[..., None, :], cells.dtype)
            total = total + ops.take(flat, index, axis=0) * weight[..., None]
    parted = ops.reshape(total, (-1, boxes.shape[1], bins, samples, bins, samples, channels))
    return ops.sum(parted, axis=(3, 5)) / samples**2


def _column(numbers: Any) -> Any:
    return numbers if isinstance(numbers, int) else numbers[..., None]


def _axis(start: Any, end: Any, size: Any, count: int) -> list[tuple[Any, Any]]:
    """The cells on both sides of each of `count` samples along one axis, and their weights.

    Each is (N, R, count).
    """
    offsets = (ops.arange(count, dtype="float32") + 0.5) / count
    place = start[..., None] + (end - start)[..., None] * offsets - 0.5
    last = ops.cast(size, "float32") - 1.0
    # Beyond the outermost centres the nearest one counts: a further cell would be of another image.
    place = ops.minimum(ops.maximum(place, 0.0), last)
    lower = ops.floor(place)
    share = place - lower
    upper = ops.minimum(lower + 1.0, last)
    return [(ops.cast(lower, "int32"), 1.0 - share), (ops.cast(upper, "int32"), share)]
