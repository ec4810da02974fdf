"""The order of an epoch: random, but neighbours that are packed together stay near each other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

MIXED = 512
"""Examples of which blocks are shuffled together, at least."""

Numbers = NDArray[np.int64]


def epoch_order(sizes: Sequence[int], block: int, mixed: int, seed: int, epoch: int) -> Numbers:
    """Every example of files of these sizes once.

    Blocks of neighbours, none over the end of a file, come in random order; in each run of `mixed`
    blocks, all examples are shuffled. With blocks of one it is a random order of all.
    """
    rng = np.random.default_rng((seed, epoch))
    total = sum(sizes)
    if block == 1:
        return rng.permutation(total)
    starts, first = [], 0
    for size in sizes:
        starts += [(start, min(start + block, first + size)) for start in range(first, first + size, block)]
        first += size
    shuffled = [starts[number] for number in rng.permutation(len(starts))]
    runs = [
        np.concatenate([np.arange(*ends) for ends in shuffled[start : start + mixed]])
        for start in range(0, len(shuffled), mixed)
    ]
    return np.concatenate([rng.permutation(run) for run in runs]).astype(np.int64)
