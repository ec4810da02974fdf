"""Timing of one operator: warm-up, blocks between two synchronisations of the device, spread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

import numpy as np

from replica.measure.micro.stacks.contract import Kernel

NOISY = 0.10
"""Spread of the blocks from which on a result is marked."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Calls and seconds of a measurement."""

    warm_calls: int = 3
    warm_s: float = 0.5
    blocks: int = 9
    block_s: float = 0.2


FEWEST_BLOCKS = 3
LONG_CALL_S = 1.0
"""Longer calls need no further warm-up, and have as many fewer blocks, but at least three."""

FULL = Plan()
QUICK = Plan(warm_s=0.05, blocks=5, block_s=0.05)


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of a call."""

    median: float
    fastest: float
    spread: float
    """(90th - 10th percentile) / median of the blocks."""

    @property
    def noisy(self) -> bool:
        """True if the blocks differ too much to be compared."""
        return self.spread > NOISY


def measure(kernel: Kernel, copies: int, plan: Plan, seconds: Callable[[], float]) -> Timing:
    """Time calls that rotate over `copies` of their operands.

    `seconds` reads a monotonic clock, always after the device has finished all calls.
    """
    calls, start, now = 0, seconds(), 0.0
    while calls < plan.warm_calls or now - start < plan.warm_s:
        kernel.call(calls % copies)
        kernel.synchronise()
        calls, now = calls + 1, seconds()
        if now - start > calls * LONG_CALL_S:
            break
    share = (now - start) / calls
    several = max(1, ceil(plan.block_s / max(share, 1e-9)))
    fewer = max(FEWEST_BLOCKS, int(plan.blocks * LONG_CALL_S / max(share, LONG_CALL_S)))
    every = range(min(plan.blocks, fewer))
    # Each block goes on after the one before: a few long calls would use the first copies alone.
    first = (calls + number * several for number in every)
    blocks = np.array([_block(kernel, range(n, n + several), copies, seconds) / several for n in first])
    median = float(np.median(blocks))
    low, high = np.percentile(blocks, (10, 90))
    return Timing(median, float(blocks.min()), float((high - low) / median))


def _block(kernel: Kernel, calls: range, copies: int, seconds: Callable[[], float]) -> float:
    start = seconds()
    for number in calls:
        kernel.call(number % copies)
    kernel.synchronise()
    return seconds() - start
