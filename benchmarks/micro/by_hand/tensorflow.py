"""TensorFlow: `python -m benchmarks.micro.loop --stack tensorflow`."""

import time

import tensorflow as tf

images = tf.random.normal((8, 48, 72, 256))
weights = tf.random.normal((3, 3, 256, 256)) / 48
convolve = tf.function(lambda: tf.nn.conv2d(images, weights, 1, "SAME"))


def seconds_per_call(calls: int) -> float:
    """Seconds of a call, over this many."""
    start = time.perf_counter()
    for _ in range(calls):
        kept = convolve().numpy()
    assert kept.any()
    return (time.perf_counter() - start) / calls
