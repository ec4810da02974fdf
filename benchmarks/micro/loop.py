"""A hand-written loop over one TensorFlow convolution, next to `aiperf micro` on the same shape.

`python -m benchmarks.micro.loop` prints operations per second of both, and the suite's spread.
"""

from __future__ import annotations

import time

import numpy as np
import tensorflow as tf

from replica.micro.measure import FULL, measure
from replica.micro.operands import make_operands
from replica.micro.stacks.tensorflow import TensorFlowStack
from workloads.micro.suite import SUITE
from workloads.micro.work import Work


def by_hand(images: tf.Tensor, weights: tf.Tensor, seconds: float = 2.0) -> float:
    """Seconds of a call, over a loop that lasts `seconds`."""
    convolve = tf.function(lambda: tf.nn.conv2d(images, weights, 1, "SAME"))
    for _ in range(5):
        convolve()
    calls, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        kept = convolve().numpy()
        calls += 1
    assert kept.any()
    return (time.perf_counter() - start) / calls


def main() -> None:
    """Alternate both ways three times."""
    work = Work(SUITE[0], "forward", 1)
    operands = make_operands(work, np.random.default_rng(1))
    kernel = TensorFlowStack().kernel(work, [operands], "float32")
    for _ in range(3):
        timing = measure(kernel, 1, FULL, time.perf_counter)
        hand = by_hand(*map(tf.constant, operands))
        rates = (work.operations / timing.median / 1e9, work.operations / hand / 1e9)
        print(f"micro {rates[0]:.1f} GOPS (spread {timing.spread:.1%}), by hand {rates[1]:.1f} GOPS")


if __name__ == "__main__":
    main()
