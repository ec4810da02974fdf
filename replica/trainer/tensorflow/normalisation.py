"""Batch normalisation in TensorFlow's fused operation, on the variables of Keras's layers.

Keras computes the moments of a batch and its normalisation in operations of their own, each a pass
over the images.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import keras
import tensorflow as tf

IMAGES = 4
"""Axes of a batch of images (N, H, W, C)."""


def fuse_normalisation(model: Any) -> None:
    """Let the model's layers normalise batches of images in one operation when they train.

    Everything else about the layers stays, and what they compute: Ioffe and Szegedy 2015.
    """
    for layer in model.layers:
        # Exactly Keras's class, whose computation this is.
        if type(layer) is not keras.layers.BatchNormalization or len(layer.input.shape) != IMAGES:
            continue
        if layer.axis in (-1, IMAGES - 1):
            layer.call = partial(_normalise, layer, layer.call)


def _normalise(layer: Any, otherwise: Any, inputs: Any, training: Any = None, mask: Any = None) -> Any:
    if not training or mask is not None:
        return otherwise(inputs, training=training, mask=mask)
    outputs, mean, unbiased, *_ = tf.raw_ops.FusedBatchNormV3(
        x=inputs, scale=layer.gamma.value, offset=layer.beta.value, mean=[], variance=[], epsilon=layer.epsilon,
        is_training=True,
    )  # fmt: skip
    # The operation gives the variance divided by N - 1, moving statistics are of that divided by N.
    count = tf.cast(tf.reduce_prod(tf.shape(inputs)[:-1]), tf.float32)
    variance = unbiased * ((count - 1) / count)
    for moving, own in ((layer.moving_mean, mean), (layer.moving_variance, variance)):
        moving.assign(moving * layer.momentum + own * (1 - layer.momentum))
    return tf.cast(outputs, layer.compute_dtype)
