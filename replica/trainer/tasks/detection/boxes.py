"""Boxes: overlaps, shifts and suppression, the random choice of those that train, and their losses.

The choice has fixed shapes and no state. Numbers are hashed from a draw that comes with each image.
What is chosen then depends on the image alone, not on the rank or the batch that it is in, and a
resumed training chooses the same.

Losses of both stages are one number for each image (Ren et al. 2015, equation 1, with both terms
divided by the number of sampled examples).
"""

from dataclasses import dataclass
from math import log
from typing import Any

from keras import ops

from workloads.settings.detection import Numbers, Sampling

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


LEAST = -(2**31)
DRAWS = 2.0**24
"""Number of different draws in [0, 1): float32 has all of them exactly."""

FIRST_FACTOR, SECOND_FACTOR = -2048144789, -1028477387
"""Factors 0x85ebca6b and 0xc2b2ae35 of MurmurHash3's finaliser (Appleby), as signed numbers."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The sampled examples of each image: their places, and flags of those that are real."""

    indices: Any
    """Places of the examples, (N, K) int32."""
    used: Any
    """Flags of the examples that count, (N, K); the others only fill up."""
    positive: Any
    """Flags of the positive examples, (N, K); all are used."""


def random_order(draws: Any, count: int, stream: int) -> Any:
    """Different numbers in random order, (N, count) int32.

    `draws` (N,) decides the order, and `stream` makes several orders from one draw.
    """
    # 24 bits of the draw and 6 for the stream fit into the 31 of a positive int32.
    start = ops.cast(ops.floor(draws * DRAWS), "int32") * 64 + stream
    # Consecutive numbers differ, and the finaliser, made of invertible steps, keeps them different.
    mixed = _mixed(start)[:, None] + ops.arange(count, dtype="int32")[None, :]
    return _mixed(mixed)


def _mixed(numbers: Any) -> Any:
    """The numbers after MurmurHash3's finaliser, in 32 bits that wrap around."""
    numbers = _folded(numbers, 16) * FIRST_FACTOR
    numbers = _folded(numbers, 13) * SECOND_FACTOR
    return _folded(numbers, 16)


def _folded(numbers: Any, bits: int) -> Any:
    # A right shift of signed numbers fills up with the sign, which the mask takes away.
    shifted = ops.bitwise_and(ops.right_shift(numbers, bits), (1 << (32 - bits)) - 1)
    return ops.bitwise_xor(numbers, shifted)


def pick(allowed: Any, order: Any, count: int) -> tuple[Any, Any]:
    """Pick the first `count` allowed ones in an order: indices (N, count), and flags if allowed.

    `allowed` and `order` are (N, A), A at least `count`. If fewer are allowed, the rest is flagged
    as not allowed: shapes must be fixed.
    """
    indices = ops.cast(ops.top_k(ops.where(allowed, order, LEAST), count)[1], "int32")
    return indices, rows_of(allowed, indices)


def sample(positive: Any, negative: Any, order: Any, wanted: Sampling) -> Sample:
    """Choose positive examples up to their share, and fill up with negative ones.

    `positive` and `negative` are (N, A) bool. Of a sample's K places at most `wanted.total` are
    used; K is larger by the number of places for positive ones.
    """
    first, is_positive = pick(positive, order, min(wanted.positives, positive.shape[1]))
    second, is_negative = pick(negative, order, min(wanted.total, positive.shape[1]))
    taken = ops.sum(ops.cast(is_positive, "int32"), axis=1, keepdims=True)
    fits = ops.arange(second.shape[1], dtype="int32")[None, :] < wanted.total - taken
    is_negative = ops.logical_and(is_negative, fits)
    return Sample(
        ops.concatenate([first, second], axis=1),
        ops.concatenate([is_positive, is_negative], axis=1),
        ops.concatenate([is_positive, ops.zeros_like(is_negative)], axis=1),
    )


def packed(chosen: Sample, count: int) -> Sample:
    """Move the used places of a sample to the front, and cut it off after `count` places."""
    places = chosen.used.shape[1]
    order = ops.cast(chosen.used, "int32") * places - ops.arange(places, dtype="int32")[None, :]
    first = ops.cast(ops.top_k(order, count)[1], "int32")
    return Sample(*(rows_of(values, first) for values in (chosen.indices, chosen.used, chosen.positive)))


def smooth_l1(errors: Any, smooth: float) -> Any:
    """Smooth L1: x^2 / (2 smooth) up to `smooth`, linear beyond (Girshick 2015, equation 3)."""
    size = ops.abs(errors)
    return ops.where(size < smooth, 0.5 * size * size / smooth, size - 0.5 * smooth)


def mean_of(values: Any, used: Any, among: Any) -> Any:
    """The sum of the used values, divided by the number of `among`, at least 1: (N,).

    All arguments are (N, K).
    """
    count = ops.maximum(ops.sum(ops.cast(among, "float32"), axis=1), 1.0)
    return ops.sum(ops.where(used, values, 0.0), axis=1) / count


def cross_entropy(logits: Any, labels: Any) -> Any:
    """The cross-entropy of logits (N, K, C) and labels (N, K) int32: (N, K)."""
    chosen = ops.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
    return ops.logsumexp(logits, axis=-1) - chosen


def shift_loss(shifts: Any, wanted: Any, smooth: float) -> Any:
    """Smooth L1 of shifts (N, K, 4), summed over the four: (N, K)."""
    return ops.sum(smooth_l1(shifts - wanted, smooth), axis=-1)
