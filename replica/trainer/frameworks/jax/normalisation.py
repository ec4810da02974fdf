"""Batch normalisation in few passes over the images, on the variables of Keras's layers.

Keras takes the mean first and then the squared differences from it: two passes of which the second
waits for the first, and as many again for their gradients. Here one pass finds both sums.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from replica.trainer.model.builder import normalise_by


def fuse_normalisation(model: Any) -> None:
    """Let the model's layers take the moments of a batch in one pass when they train."""
    normalise_by(model, _in_one_pass)


def _in_one_pass(layer: Any, inputs: Any) -> tuple[Any, Any, Any]:
    """The variance is the mean square less the square of the mean, in float32.

    It loses digits where a channel's mean is large beside its deviation: at 100 times it is 2e-3
    off.
    """
    wide = inputs.astype(jnp.float32)
    axes = tuple(range(wide.ndim - 1))
    mean = wide.mean(axes)
    # Below zero by rounding where all values of a channel are alike.
    variance = jnp.maximum((wide * wide).mean(axes) - mean * mean, 0)
    factor = layer.gamma.value * jax.lax.rsqrt(variance + layer.epsilon)
    return wide * factor + (layer.beta.value - mean * factor), mean, variance
