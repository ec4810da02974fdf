"""Copies between the memory of the host and that of an accelerator, by PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import numpy as np

SIZE = 256 << 20
"""Bytes of a copy, from and to pages that the kernel does not move."""

BLOCKS, QUICK_COPIES, COPIES = 5, 2, 10


def copy_rates(
    torch: Any, device: Any, quick: bool, seconds: Callable[[], float]
) -> Iterator[tuple[str, float, float]]:
    """Measures `to_device` and `from_device`: bytes per second, and the spread of the blocks."""
    accelerated = torch.device(device).type != "cpu"
    host = torch.zeros(SIZE, dtype=torch.uint8, pin_memory=accelerated)
    there = torch.zeros(SIZE, dtype=torch.uint8, device=device)
    for measure, into, source in (("to_device", there, host), ("from_device", host, there)):

        def block(into: Any = into, source: Any = source) -> float:
            began, copies = seconds(), QUICK_COPIES if quick else COPIES
            for _ in range(copies):
                into.copy_(source, non_blocking=True)
            if accelerated:
                torch.accelerator.synchronize()
            return copies * SIZE / (seconds() - began)

        block()
        rates = [block() for _ in range(BLOCKS)]
        low, high = np.percentile(rates, (10, 90))
        yield measure, median(rates), float((high - low) / median(rates))
