"""A convolution by a stack of the micro suite, next to a loop written by hand.

`python -m benchmarks.micro.loop --stack tensorflow` (or torch, jax) alternates the suite and the
loop of `benchmarks/micro/by_hand` on 8 images of 48 x 72 x 256, with 3 x 3 kernels and 256 filters,
and prints both rates, the suite's spread, and their ratio. `--stack native` has no loop.
"""

import argparse
import time
from importlib import import_module
from statistics import median

import numpy as np

from replica.measure.micro.measure import FULL, measure
from replica.measure.micro.operands import make_operands
from replica.measure.micro.stacks import STACKS
from workloads.micro import SUITE, Work

WORK = Work(SUITE[0], "forward", 8)
CALLS = 12
"""Of a block by hand: about as long as the suite's nine."""


def main() -> None:
    """Alternate both ways."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--stack", default="tensorflow", choices=tuple(STACKS))
    parser.add_argument("--repetitions", type=int, default=5)
    arguments = parser.parse_args()
    operands = make_operands(WORK, np.random.default_rng(1))
    kernel = STACKS.load(arguments.stack)().kernel(WORK, [operands], "float32")
    hand = None if arguments.stack == "native" else import_module(f"benchmarks.micro.by_hand.{arguments.stack}")
    rates: list[float] = []
    loops: list[float] = []
    for _ in range(arguments.repetitions):
        timing = measure(kernel, 1, FULL, time.perf_counter)
        rates.append(WORK.operations / timing.median / 1e9)
        text = f"micro {rates[-1]:.1f} GOPS (spread {timing.spread:.1%})"
        if hand is not None:
            hand.seconds_per_call(3)
            loops.append(WORK.operations / hand.seconds_per_call(CALLS) / 1e9)
            text += f", by hand {loops[-1]:.1f} GOPS"
        print(text, flush=True)
    print(f"{arguments.stack}: median {median(rates):.1f} GOPS, best {max(rates):.1f}", end="")
    print(
        f"; by hand {median(loops):.1f}, best {max(loops):.1f}; ratio {median(rates) / median(loops):.3f}"
        if loops
        else ""
    )


if __name__ == "__main__":
    main()
