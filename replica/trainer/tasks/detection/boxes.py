"""Boxes: overlaps, shifts from one box to another, suppression of those that overlap."""

from __future__ import annotations

from math import log
from typing import Any

from keras import ops

from workloads.settings.detection import Numbers

SMALLEST_SIDE = 1e-3
"""Least side in pixels that is divided by, or that has a logarithm."""


def area(boxes: Any) -> Any:
    """The areas of boxes (..., 4) in pixels: (...)."""
    return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])


def overlap(some: Any, others: Any) -> Any:
    """The intersection over union of boxes (..., A, 4) and (..., B, 4): (..., A, B).

    Empty boxes overlap nothing.
    """
    one, other = some[..., :, None, :], others[..., None, :, :]
    sides = ops.minimum(one[..., 2:], other[..., 2:]) - ops.maximum(one[..., :2], other[..., :2])
    sides = ops.maximum(sides, 0.0)
    shared = sides[..., 0] * sides[..., 1]
    union = area(one) + area(other) - shared
    # The inner choice keeps the gradient of the division finite where the outer one discards it.
    return ops.where(union > 0.0, shared / ops.where(union > 0.0, union, 1.0), 0.0)


def _centre_and_sides(boxes: Any) -> tuple[Any, Any]:
    sides = boxes[..., 2:] - boxes[..., :2]
    return boxes[..., :2] + 0.5 * sides, ops.maximum(sides, SMALLEST_SIDE)


def encode(boxes: Any, references: Any, scales: Numbers) -> Any:
    """The shifts from references to boxes, (..., 4) each: y and x, height and width.

    Ren et al. 2015, equation 2: the move of the centre in sides of the reference, and the logarithm
    of the growth; all divided by `scales`.
    """
    centre, sides = _centre_and_sides(boxes)
    first, before = _centre_and_sides(references)
    shifts = ops.concatenate([(centre - first) / before, ops.log(sides / before)], axis=-1)
    return shifts / ops.convert_to_tensor(scales, "float32")


def decode(shifts: Any, references: Any, scales: Numbers, largest_growth: float) -> Any:
    """The boxes that shifts lead to, (..., 4) each: the inverse of `encode`."""
    first, before = _centre_and_sides(references)
    shifts = shifts * ops.convert_to_tensor(scales, "float32")
    growth = ops.exp(ops.minimum(shifts[..., 2:], log(largest_growth)))
    centre, half = first + shifts[..., :2] * before, 0.5 * before * growth
    return ops.concatenate([centre - half, centre + half], axis=-1)


def clip(boxes: Any, image: tuple[int, int]) -> Any:
    """The parts of boxes (..., 4) that lie in an image of this height and width."""
    height, width = image
    return ops.clip(boxes, 0.0, ops.convert_to_tensor((height, width, height, width), "float32"))


def rows_of(values: Any, indices: Any) -> Any:
    """The rows of each image: values (N, A) or (N, A, C) at indices (N, K): (N, K) or (N, K, C)."""
    if len(values.shape) == 3:
        indices = indices[..., None]
    return ops.take_along_axis(values, indices, axis=1)


def survivors(boxes: Any, valid: Any, most: float) -> Any:
    """Flags of the boxes that greedy suppression keeps, (..., K), of (..., K, 4), best first.

    A box stays if it is valid and overlaps no better box that stays by more than `most`. With all
    boxes staying at first, a round of this rule settles at least one more box, from the best on;
    when a round changes nothing, the rule holds for all, and only the greedy choice fulfils it.
    """
    places = ops.arange(boxes.shape[-2], dtype="int32")
    better = places[None, :] < places[:, None]
    rivals = ops.cast(ops.logical_and(overlap(boxes, boxes) > most, better), "float32")

    def rule(stay: Any) -> Any:
        beaten = ops.squeeze(ops.matmul(rivals, ops.cast(stay, "float32")[..., None]), axis=-1)
        return ops.logical_and(valid, beaten < 0.5)

    def changed(before: Any, now: Any) -> Any:
        return ops.any(ops.not_equal(before, now))

    _, stay = ops.while_loop(changed, lambda before, now: (now, rule(now)), (valid, rule(valid)))
    return stay
