"""A framework's training step in the trainer, against the best loop written in that framework.

`python -m benchmarks.trainings.frameworks FRAMEWORK SIDE BATCH STEPS ROUNDS PRECISION [cpu]` prints
images/s as JSON; benchmarks.training calls it. The loops are those of benchmarks/gpu.py. With `cpu`
the seconds are those of this process on the CPU, and one thread computes: on a machine that is
shared with other programs, ratios are steadier so.
"""

import json
import os
import sys
import time
from collections.abc import Callable

from aiperf.config.datasets import Dataset
from benchmarks.gpu import LOOPS, WARM_UP, Job
from benchmarks.measure import median_values
from replica.trainer.frameworks import FRAMEWORKS

Seconds = Callable[[], float]
"""A clock."""

POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}


def own(name: str, job: Job, steps: int, seconds: Seconds = time.perf_counter) -> Callable[[], float]:
    """A function that trains an epoch of this many steps in the trainer and gives its images/s."""
    framework = FRAMEWORKS.load(name)()
    framework.configure(1 if seconds is time.process_time else os.cpu_count() or 1, 0)
    # Keras takes its backend from the framework that is loaded before it.
    from benchmarks.trainings.training import trainer  # noqa: PLC0415
    from replica.trainer.data.synthetic import SyntheticSource  # noqa: PLC0415

    facts = Dataset("synthetic", steps * job.batch, job.batch, job.size, job.classes, job.batch, 60)
    return trainer(framework, SyntheticSource(facts), POLICIES[job.precision], job.batch, seconds)


def bare(name: str, variant: str, job: Job, steps: int, seconds: Seconds = time.perf_counter) -> Callable[[], float]:
    """A function that does as many steps of a bare loop and gives its images/s."""
    step, wait, _ = LOOPS[name][0](variant, job)
    for _ in range(WARM_UP):
        wait(step())

    def run() -> float:
        began = seconds()
        for _ in range(steps):
            last = step()
        wait(last)
        return job.batch * steps / (seconds() - began)

    return run


def main() -> int:
    """Print images/s by candidate."""
    name, precision = sys.argv[1], sys.argv[6]
    side, batch, steps, rounds = map(int, sys.argv[2:6])
    job = Job(side, batch, 1000 if side == 224 else 10, precision)
    seconds = time.process_time if "cpu" in sys.argv[7:] else time.perf_counter
    candidates = {"trainer": own(name, job, steps, seconds)}
    candidates |= {variant: bare(name, variant, job, steps, seconds) for variant in LOOPS[name][1]}
    print(json.dumps(median_values(candidates, rounds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
