"""Random streams of generated samples: sample k of a seed is the same on any machine, in any order.

Values are rounded to steps that are far larger than the last bits in which mathematical libraries
differ, and far smaller than anything that matters.
"""

import numpy as np
from numpy.random import Generator, Philox
from numpy.typing import NDArray

VALIDATION_START = 10_000_000
"""Number of the first validation sample; those of training samples begin with 0."""

TEST_START = 2 * VALIDATION_START
"""Number of the first test sample."""

MOST_SEED = (1 << 63) - 1


def stream(seed: int, sample: int) -> Generator:
    """The random stream of a sample: Philox 4x64 (Salmon et al. 2011) with both numbers as key."""
    return Generator(Philox(key=np.array([seed, sample], np.uint64)))


def rounded(values: NDArray[np.float64], step: float) -> NDArray[np.float32]:
    """Round to whole multiples of `step`, a power of two, as float32."""
    return (np.rint(values / step) * step).astype(np.float32)
