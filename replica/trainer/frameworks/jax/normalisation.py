"""Batch normalisation in few passes over the images, on the variables of Keras's layers.

Keras takes the mean first and then the squared differences from it: two passes of which the second
waits for the first, and as many again for their gradients. Here one pass finds both sums.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import prod
from typing import Any

import jax
import jax.numpy as jnp

from replica.trainer.model.builder import normalise_by


def fuse_normalisation(model: Any) -> None:
    """Let the model's layers take the moments of a batch in one pass when they train."""
    normalise_by(model, _in_one_pass)


_MASK: ContextVar[Any] = ContextVar("mask", default=None)
"""(N,) float32 as a step is traced: 1 for images that count, 0 for those that fill a batch up."""


@contextmanager
def counting(mask: Any) -> Iterator[None]:
    """A block in which moments are those of the images that count."""
    token = _MASK.set(mask)
    try:
        yield
    finally:
        _MASK.reset(token)


def _means(values: Any, mask: Any) -> Any:
    """The mean of each channel."""
    axes = tuple(range(values.ndim - 1))
    if mask is None:
        return values.mean(axes)
    weights = mask.reshape(-1, *[1] * (values.ndim - 1))
    # A rank without images has no moments, and must not divide by nothing.
    return (values * weights).sum(axes) / (jnp.maximum(mask.sum(), 1.0) * prod(values.shape[1:-1]))


def _in_one_pass(layer: Any, inputs: Any) -> tuple[Any, Any, Any]:
    """The variance is the mean square less the square of the mean, in float32.

    It loses digits where a channel's mean is large beside its deviation: at 100 times it is 2e-3
    off.
    """
    wide = inputs.astype(jnp.float32)
    mask = _MASK.get()
    mean = _means(wide, mask)
    # Below zero by rounding where all values of a channel are alike.
    variance = jnp.maximum(_means(wide * wide, mask) - mean * mean, 0)
    factor = layer.gamma.value * jax.lax.rsqrt(variance + layer.epsilon)
    return wide * factor + (layer.beta.value - mean * factor), mean, variance
