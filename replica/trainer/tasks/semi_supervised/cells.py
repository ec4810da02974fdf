"""True boxes as the labels of cells, and cells as boxes.

Kurth et al. 2017, section III-B, after Redmon et al. 2016 ("You Only Look Once"): the cell that
holds the centre of a box answers for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, log2
from typing import Any

import numpy as np
from keras import ops
from numpy.typing import NDArray

from replica.trainer.tasks.detection.boxes import SMALLEST_SIDE, clip, rows_of
from workloads.settings.semi_supervised import SemiSupervisedSettings


@dataclass(frozen=True, slots=True)
class Labels:
    """What the cells of each image are to say; the cells row by row."""

    holds: Any
    """(N, K) bool: a box's centre is in the cell."""
    classes: Any
    """(N, K) int32; 0 in cells without a box."""
    offsets: Any
    """(N, K, 2): x and y of the centre from the cell's upper left corner, in cells."""
    sizes: Any
    """(N, K, 2): log2 of width and height, in cells."""


def label_cells(rows: Any, settings: SemiSupervisedSettings) -> Labels:
    """Labels of rows (N, B, 5): ymin, xmin, ymax, xmax, class, negative where a row is unused.

    Of several boxes with their centres in one cell, the cell has the first one. A centre on the
    lower or right edge of the image is in the last cell.
    """
    height, width = settings.grid
    count = rows.shape[1]
    valid = rows[..., 4] >= 0.0
    boxes = ops.where(valid[..., None], rows[..., :4], 0.0) / settings.cell
    centres = 0.5 * (boxes[..., :2] + boxes[..., 2:])
    most = ops.convert_to_tensor((height - 1.0, width - 1.0), "float32")
    places = ops.clip(ops.floor(centres), 0.0, most)
    cells = ops.cast(places[..., 0] * width + places[..., 1], "int32")
    own = ops.logical_and(cells[..., None] == ops.arange(height * width, dtype="int32"), valid[..., None])
    # The first row has the highest number, and 0 is none.
    numbers = count - ops.arange(count, dtype="int32")
    highest = ops.max(ops.where(own, numbers[None, :, None], 0), axis=1)
    box = count - ops.maximum(highest, 1)
    sides = ops.maximum(boxes[..., 2:] - boxes[..., :2], SMALLEST_SIDE / settings.cell)
    offsets, sizes = (rows_of(ops.flip(values, axis=-1), box) for values in (centres - places, ops.log2(sides)))
    holds = highest > 0
    inside = holds[..., None]
    classes = ops.where(holds, ops.cast(rows_of(rows[..., 4], box), "int32"), 0)
    return Labels(holds, classes, ops.where(inside, offsets, 0.0), ops.where(inside, sizes, 0.0))


def corners(settings: SemiSupervisedSettings) -> NDArray[np.float32]:
    """x and y of the upper left corner of every cell, in cells: (K, 2)."""
    height, width = settings.grid
    rows, columns = np.indices((height, width), np.float32)
    return np.stack([columns, rows], axis=-1).reshape(-1, 2)


def boxes_of(offsets: Any, sizes: Any, settings: SemiSupervisedSettings) -> Any:
    """Boxes (N, K, 4) in the image that offsets and sizes, (N, K, 2) each, stand for."""
    centres = ops.convert_to_tensor(corners(settings)) + offsets
    # No true box is larger than the image.
    largest = log2(max(settings.image) / settings.cell)
    half = 0.5 * ops.exp(log(2.0) * ops.minimum(sizes, largest))
    found = ops.concatenate([ops.flip(centres - half, axis=-1), ops.flip(centres + half, axis=-1)], axis=-1)
    return clip(found * settings.cell, settings.image)
