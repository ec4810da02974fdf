"""Features of regions, cut from the level of the pyramid that suits their size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops

from replica.trainer.model.roi_align import Grid, align
from replica.trainer.tasks.detection.boxes import area
from workloads.settings.detection import DetectionSettings


def level_of(boxes: Any, settings: DetectionSettings) -> Any:
    """The level, 0 the finest, of boxes (N, R, 4): (N, R) int32.

    Lin et al. 2017, equation 1: one level further with every doubling of the side of the square of
    a box's area, from `region_side` on.
    """
    # Without a logarithm, whose rounding differs between frameworks at the borders.
    borders = [settings.region_side * 2**level for level in range(1, settings.region_levels)]
    return sum(
        (ops.cast(area(boxes) >= border**2, "int32") for border in borders), ops.zeros_like(boxes[..., 0], "int32")
    )


def cut(levels: Sequence[Any], boxes: Any, settings: DetectionSettings) -> Any:
    """Features of boxes (N, R, 4) from levels (N, H, W, C), finest first: (N, R, bins * bins * C).

    He et al. 2017, section 3. Gradients go to the levels alone.
    """
    boxes = ops.stop_gradient(boxes)
    heights, widths, channels = zip(*(level.shape[1:] for level in levels), strict=True)
    sizes = np.multiply(heights, widths)
    own = level_of(boxes, settings)

    def by_level(numbers: Any) -> Any:
        return ops.take(ops.convert_to_tensor(np.asarray(numbers, np.int32)), own, axis=0)

    grid = Grid(by_level(heights), by_level(widths), by_level(np.cumsum(sizes) - sizes))
    strides = ops.cast(by_level(settings.strides[: len(levels)]), "float32")
    cells = [ops.reshape(level, (-1, int(size), channels[0])) for level, size in zip(levels, sizes, strict=True)]
    found = align(ops.concatenate(cells, axis=1), boxes / strides[..., None], grid, settings.bins, settings.samples)
    return ops.reshape(found, (-1, boxes.shape[1], settings.bins**2 * channels[0]))
