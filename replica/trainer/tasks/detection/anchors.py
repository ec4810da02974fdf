"""Anchors: the boxes from which proposals are shifted."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from workloads.settings.detection import DetectionSettings


def anchors_of(settings: DetectionSettings) -> NDArray[np.float32]:
    """All anchors, (A, 4): by level, row, column and ratio.

    Ren et al. 2015, section 3.3: those of a cell have one centre, that of the cell, and one area.
    """
    height, width = settings.image
    levels = [
        _of_level(height // stride, width // stride, stride, shapes_of(size, settings.ratios))
        for stride, size in zip(settings.strides, settings.anchor_sizes, strict=True)
    ]
    return np.concatenate(levels).astype(np.float32)


def shapes_of(size: float, ratios: tuple[float, ...]) -> NDArray[np.float64]:
    """Height and width of the anchors of area size x size, by height over width: (ratios, 2)."""
    root = np.sqrt(np.asarray(ratios))
    return np.stack([size * root, size / root], axis=-1)


def _of_level(rows: int, columns: int, stride: int, shapes: NDArray[np.float64]) -> NDArray[np.float64]:
    places = np.stack(np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij"), axis=-1)
    centres = (places[:, :, None] + 0.5) * stride
    return np.concatenate([centres - shapes / 2, centres + shapes / 2], axis=-1).reshape(-1, 4)
