"""Random choice of examples, with fixed shapes and without a state.

Numbers are hashed from a draw that comes with each image. What is chosen then depends on the image
alone, not on the rank or the batch that it is in, and a resumed training chooses the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from keras import ops

from replica.trainer.tasks.detection.boxes import rows_of
from workloads.settings.detection import Sampling

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
