"""Timing of one operator: warm-up, blocks between two synchronisations of the device, spread."""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

import numpy as np

from replica.measure.micro.stacks.contract import Kernel

NOISY = 0.10
"""Spread of the blocks above which a result is marked."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a measurement: its calls and seconds."""

    warm_calls: int = 3
    warm_s: float = 0.5
    blocks: int = 9
    block_s: float = 0.2


FEWEST_BLOCKS = 3
LONG_CALL_S = 1.0
"""Seconds above which a call needs no further warm-up, and has fewer blocks the longer it is."""

FULL = Plan()
QUICK = Plan(warm_s=0.05, blocks=5, block_s=0.05)


@dataclass(frozen=True, slots=True)
class Timing:
    """The timing of a call, in seconds."""

    median: float
    fastest: float
    spread: float
    """(90th - 10th percentile) / median of the blocks."""
    joules: float | None = None
    """Joules of a call, the mean over all blocks; None without a counter that can tell."""

    @property
    def noisy(self) -> bool:
        """True if the blocks differ too much to be compared."""
        return self.spread > NOISY


Energy = Callable[[], Callable[[], float | None]]


def measure(
    kernel: Kernel, copies: int, plan: Plan, seconds: Callable[[], float], energy: Energy | None = None
) -> Timing:
    """Time calls that rotate over `copies` of their operands.

    `seconds` reads a monotonic clock, always after the device has finished all calls. `energy`
    begins to count joules, and gives what was used since.
    """
    calls, start, now = 0, seconds(), 0.0
    while calls < plan.warm_calls or now - start < plan.warm_s:
        kernel.call(calls % copies)
        kernel.synchronise()
        calls, now = calls + 1, seconds()
        # Calls of a second each warm a device up by themselves.
        if now - start > calls * LONG_CALL_S:
            break
    share = (now - start) / calls
    several = max(1, ceil(plan.block_s / max(share, 1e-9)))
    fewer = max(FEWEST_BLOCKS, int(plan.blocks * LONG_CALL_S / max(share, LONG_CALL_S)))
    every = range(min(plan.blocks, fewer))
    # Each block continues with the copies after the one before: a few long calls would otherwise
    # use the first copies alone, which a cache may then hold.
    first = (calls + number * several for number in every)
    used = energy() if energy is not None else None
    blocks = np.array([_block(kernel, range(n, n + several), copies, seconds) / several for n in first])
    median = float(np.median(blocks))
    # Quantiles, not the deviation: a single interrupt must not mark a quiet measurement.
    low, high = np.percentile(blocks, (10, 90))
    joules = used() if used is not None else None
    each = joules / (len(blocks) * several) if joules is not None else None
    return Timing(median, float(blocks.min()), float((high - low) / median), each)


def _block(kernel: Kernel, calls: range, copies: int, seconds: Callable[[], float]) -> float:
    start = seconds()
    for number in calls:
        kernel.call(number % copies)
    kernel.synchronise()
    return seconds() - start
