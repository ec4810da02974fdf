"""JAX: `python -m benchmarks.micro.loop --stack jax`."""

import time

import jax

images = jax.random.normal(jax.random.key(1), (8, 48, 72, 256))
weights = jax.random.normal(jax.random.key(2), (3, 3, 256, 256)) / 48
layout = ("NHWC", "HWIO", "NHWC")
convolve = jax.jit(lambda x, w: jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=layout))


def seconds_per_call(calls: int) -> float:
    """Seconds of a call, over this many."""
    start = time.perf_counter()
    for _ in range(calls):
        kept = convolve(images, weights).block_until_ready()
    assert kept.any()
    return (time.perf_counter() - start) / calls
