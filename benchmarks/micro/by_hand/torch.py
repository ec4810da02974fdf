"""PyTorch: `python -m benchmarks.micro.loop --stack torch`."""

import time

import torch

images = torch.randn(8, 256, 48, 72).contiguous(memory_format=torch.channels_last)
weights = (torch.randn(256, 256, 3, 3) / 48).contiguous(memory_format=torch.channels_last)


def seconds_per_call(calls: int) -> float:
    """Seconds of a call, over this many."""
    start = time.perf_counter()
    with torch.inference_mode():
        for _ in range(calls):
            kept = torch.nn.functional.conv2d(images, weights, padding=1)
    assert kept.any()
    return (time.perf_counter() - start) / calls
