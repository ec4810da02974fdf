"""Losses of both stages, one number for each image.

Ren et al. 2015, equation 1, with both terms divided by the number of sampled examples.
"""

from __future__ import annotations

from typing import Any

from keras import ops


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
