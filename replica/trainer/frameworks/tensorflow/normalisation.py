"""Batch normalisation in TensorFlow's fused operation, on the variables of Keras's layers.

Keras computes the moments of a batch and its normalisation in operations of their own, each a pass
over the images.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from replica.trainer.model.builder import normalise_by

IMAGES = 4
"""Axes of a batch of images (N, H, W, C)."""


def fuse_normalisation(model: Any) -> None:
    """Let the model's layers normalise batches of images in one operation when they train."""
    normalise_by(model, _fused, IMAGES)


def _fused(layer: Any, inputs: Any) -> tuple[Any, Any, Any]:
    outputs, mean, unbiased, *_ = tf.raw_ops.FusedBatchNormV3(
        x=inputs, scale=layer.gamma.value, offset=layer.beta.value, mean=[], variance=[], epsilon=layer.epsilon,
        is_training=True,
    )  # fmt: skip
    # The operation gives the variance divided by N - 1, moving statistics are of that divided by N.
    count = tf.cast(tf.reduce_prod(tf.shape(inputs)[:-1]), tf.float32)
    return outputs, mean, unbiased * ((count - 1) / count)
