"""The triad of `aiperf micro` in blocks, next to the triad on whole vectors, which take turns.

`python -m benchmarks.micro.triad --stacks torch,native` prints bytes per second of processor time
on one core of both, medians of turns, and their ratio: it should be within a tenth of 1. Both
stream through as much memory.
"""

import argparse
import os
import time
from statistics import median

import numpy as np

from aiperf.host import this_host
from aiperf.network.roofline import ITEM_SIZES
from benchmarks.micro.turns import ONE
from replica.measure.micro.operands import make_operands
from replica.measure.micro.sizes import BLOCKS, Streamed, last_level_cache
from replica.measure.micro.stacks import STACKS
from replica.measure.micro.stacks.contract import Kernel

PASSES = 2
"""Over all vectors in a turn."""


def main() -> None:
    """Take turns, and print a line for each stack."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--stacks", default="native,torch,tensorflow,jax", metavar="LIST")
    parser.add_argument("--precision", default="float32", choices=tuple(ITEM_SIZES))
    parser.add_argument("--caches", type=int, default=4, help="size of a vector in last-level caches (%(default)s)")
    parser.add_argument("--turns", type=int, default=15)
    arguments = parser.parse_args()
    # Before the stacks are loaded, which read these variables only then.
    os.environ.update(ONE, XLA_FLAGS="--xla_cpu_multi_thread_eigen=false")
    cache, item = last_level_cache(this_host()), ITEM_SIZES[arguments.precision]
    elements = arguments.caches * cache // item
    plans = (Streamed(elements, 1, item, cache), Streamed(elements // BLOCKS, BLOCKS, item, cache))
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    print(f"last-level caches {cache / 2**20:.0f} MiB, vectors {elements * item / 2**20:.0f} MiB, {BLOCKS} blocks")
    for name in arguments.stacks.split(","):
        kernels = [_kernel(name, plan, arguments.precision) for plan in plans]
        rates: list[list[float]] = [[], []]
        for turn in range(arguments.turns):
            # Neither is always the first of a turn, which may find the core at another pace.
            for place in (0, 1) if turn % 2 else (1, 0):
                rates[place].append(_rate(kernels[place], plans[place]))
        whole, blocked = map(median, rates)
        print(f"{name}: whole {whole / 1e9:.2f} GB/s, blocks {blocked / 1e9:.2f} GB/s, ratio {blocked / whole:.3f}")


def _kernel(name: str, plan: Streamed, precision: str) -> Kernel:
    generator = np.random.default_rng(1)
    operands = (make_operands(plan.work, generator) for _ in range(plan.blocks))
    kernel: Kernel = STACKS.load(name)().kernel(plan.work, operands, precision)
    for copy in range(plan.blocks):  # all results have their memory
        kernel.call(copy)
    return kernel


def _rate(kernel: Kernel, plan: Streamed) -> float:
    began = time.process_time()
    for call in range(PASSES * plan.blocks):
        kernel.call(call % plan.blocks)
    kernel.synchronise()
    return PASSES * plan.bytes / (time.process_time() - began)


if __name__ == "__main__":
    main()
