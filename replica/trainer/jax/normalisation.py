"""Batch normalisation in few passes over the images, on the variables of Keras's layers.

Keras takes the mean first and then the squared differences from it: two passes of which the second
waits for the first, and as many again for their gradients. Here one pass finds both sums.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import keras


def fuse_normalisation(model: Any) -> None:
    """Let the model's layers normalise a batch so when they train.

    Everything else about the layers stays, and what they compute but for rounding: Ioffe and
    Szegedy 2015.
    """
    for layer in model.layers:
        # Exactly Keras's class, whose computation this is.
        if type(layer) is not keras.layers.BatchNormalization or not (layer.scale and layer.center):
            continue
        if layer.axis in (-1, len(layer.input.shape) - 1):
            layer.call = partial(_normalise, layer, layer.call)


def _normalise(layer: Any, otherwise: Any, inputs: Any, training: Any = None, mask: Any = None) -> Any:
    if not training or mask is not None or not layer.trainable:
        return otherwise(inputs, training=training, mask=mask)
    wide = inputs.astype(jnp.float32)
    axes = tuple(range(wide.ndim - 1))
    mean = wide.mean(axes)
    # Below zero by rounding where all values of a channel are alike.
    variance = jnp.maximum((wide * wide).mean(axes) - mean * mean, 0)
    for moving, own in ((layer.moving_mean, mean), (layer.moving_variance, variance)):
        moving.assign(moving * layer.momentum + own * (1 - layer.momentum))
    factor = layer.gamma.value * jax.lax.rsqrt(variance + layer.epsilon)
    return (wide * factor + (layer.beta.value - mean * factor)).astype(layer.compute_dtype)
