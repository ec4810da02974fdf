"""True boxes of images, and which anchors or regions belong to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from keras import ops

from replica.trainer.tasks.detection.boxes import overlap
from workloads.settings.detection import Sampling


@dataclass(frozen=True, slots=True)
class Truth:
    """True boxes of each image, and the draw that decides what is sampled."""

    boxes: Any
    """(N, B, 4) float32."""
    classes: Any
    """(N, B) int32."""
    valid: Any
    """(N, B) bool."""
    draws: Any
    """(N,) float32 in [0, 1)."""


@dataclass(frozen=True, slots=True)
class Matches:
    """What candidates are taken for, (N, A) each."""

    box: Any
    """The true box that it overlaps most, int32."""
    positive: Any
    negative: Any


def truth_of(targets: Any) -> Truth:
    """Read targets (N, B + 1, 5): rows ymin, xmin, ymax, xmax, class, and the row of the draw.

    Rows whose class is negative are unused.
    """
    rows = targets[:, :-1]
    valid = rows[..., 4] >= 0.0
    boxes = ops.where(valid[..., None], rows[..., :4], 0.0)
    draws = targets[:, -1, 0]
    return Truth(boxes, ops.cast(ops.maximum(rows[..., 4], 0.0), "int32"), valid, draws - ops.floor(draws))


def match(candidates: Any, truth: Truth, wanted: Sampling) -> Matches:
    """Match boxes (A, 4) or (N, A, 4) with the true boxes of each image.

    Ren et al. 2015, section 3.1.2. Unused rows overlap nothing.
    """
    shared = ops.where(truth.valid[:, None, :], overlap(candidates, truth.boxes), 0.0)
    best = ops.max(shared, axis=2)
    positive = best >= wanted.positive_overlap
    if wanted.best_of_box:
        of_box = ops.max(shared, axis=1, keepdims=True)
        is_best = ops.logical_and(shared >= of_box, shared > 0.0)
        positive = ops.logical_or(positive, ops.any(is_best, axis=2))
    negative = ops.logical_and(best < wanted.negative_overlap, ops.logical_not(positive))
    return Matches(ops.cast(ops.argmax(shared, axis=2), "int32"), positive, negative)
