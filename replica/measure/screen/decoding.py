"""The rate at which the CPUs decode JPEG images, by Pillow, which every installation has."""

from __future__ import annotations

import io
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median

import numpy as np
from PIL import Image

WIDTH, HEIGHT = 500, 375
"""The commonest size of ImageNet's images."""

BLOCKS, IMAGES_OF_A_CPU = 5, 40


def encoded_image() -> bytes:
    """A JPEG of smooth colours with noise: about as many bytes as a photograph of its size."""
    generator = np.random.default_rng(1)
    smooth = generator.integers(0, 256, (12, 16, 3), dtype=np.uint8)
    large = np.asarray(Image.fromarray(smooth).resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC), np.int16)
    noisy = np.clip(large + generator.integers(-12, 13, large.shape), 0, 255).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(noisy).save(stream, "JPEG", quality=90)
    return stream.getvalue()


def decoding_rate(cpus: int, seconds: Callable[[], float]) -> tuple[float, float]:
    """Images per second on so many threads, and the spread of the blocks."""
    image = encoded_image()
    work = [image] * IMAGES_OF_A_CPU * cpus
    with ThreadPoolExecutor(cpus) as pool:
        list(pool.map(decoded, work[: 2 * cpus]))
        rates = [_rate(pool, work, seconds) for _ in range(BLOCKS)]
    low, high = np.percentile(rates, (10, 90))
    middle = median(rates)
    return middle, float((high - low) / middle)


def decoded(encoded: bytes) -> Image.Image:
    """Decode an image, which releases Python's lock."""
    return Image.open(io.BytesIO(encoded)).convert("RGB")


def _rate(pool: ThreadPoolExecutor, work: list[bytes], seconds: Callable[[], float]) -> float:
    began = seconds()
    for _ in pool.map(decoded, work, chunksize=1):
        pass
    return len(work) / (seconds() - began)
