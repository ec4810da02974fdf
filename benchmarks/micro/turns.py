"""The convolutions of the quick suite by several stacks that take turns, call by call, on one core.

`python -m benchmarks.micro.turns --stacks native,torch,tensorflow` prints operations per second of
processor time: other processes on the machine disturb it less than the time of the clock.
"""

import argparse
import os
import time
from statistics import geometric_mean, median

ONE = {"OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}


def main() -> None:
    """Take turns, and print a line for each pass."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--stacks", default="native,torch,tensorflow", metavar="LIST")
    parser.add_argument("--turns", type=int, default=25)
    arguments = parser.parse_args()
    os.environ.update(ONE)
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    names = arguments.stacks.split(",")
    ratios = [_pass(names, arguments.turns, *place) for place in _places()]
    print(f"{names[0]} / best of the others: geometric mean {geometric_mean(ratios):.3f}")


def _places() -> list[tuple[int, int]]:
    """Numbers of the cases and of their passes."""
    from workloads.micro import KINDS, selected  # noqa: PLC0415  # after the threads are limited

    cases = selected(("conv",), KINDS, quick=True)
    return [(number, place) for number, case in enumerate(cases) for place in range(len(case.directions))]


def _pass(names: list[str], turns: int, number: int, place: int) -> float:
    """Print the rates of one pass; the first stack's over the best of the others."""
    import numpy as np  # noqa: PLC0415

    from replica.measure.micro.operands import make_operands  # noqa: PLC0415
    from replica.measure.micro.stacks import STACKS  # noqa: PLC0415
    from workloads.micro import (  # noqa: PLC0415
        KINDS,
        Work,
        selected,
    )

    case = selected(("conv",), KINDS, quick=True)[number]
    work = Work(case, case.directions[place], 1)
    operands = make_operands(work, np.random.default_rng(1))
    kernels = [STACKS.load(name)().kernel(work, [operands], "float32") for name in names]
    seconds: list[list[float]] = [[] for _ in names]
    for turn in range(turns + 3):
        for kernel, own in zip(kernels, seconds, strict=True):
            began = time.process_time()
            kernel.call(0)
            kernel.synchronise()
            if turn >= 3:
                own.append(time.process_time() - began)
    rates = [work.operations / median(own) / 1e9 for own in seconds]
    shown = ", ".join(f"{name} {rate:.1f}" for name, rate in zip(names, rates, strict=True))
    print(f"{case.text}, {work.direction}: {shown} GOPS a core", flush=True)
    return rates[0] / max(rates[1:])


if __name__ == "__main__":
    main()
