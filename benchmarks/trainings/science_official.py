"""Scientific workloads at their official size: a few steps and an evaluation of the real trainer.

python -m benchmarks.trainings.science_official [--workload NAME,...] [--batch 1] [--format json]

Each workload trains an epoch of a few generated samples in a process of its own. A step is a
forward and a backward pass with the update. Memory is the most that the process had resident, the
framework, the optimiser and the input pipeline included. Operations of an image are counted by rule
set `science-1`; XLA's are those of forward and backward pass of the task, loss included, as its
cost analysis has them for the program that it is given: translated on JAX, not compiled. Tasks of
several losses, and those with loops over regions, have none.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from aiperf.clock import SystemClock
from aiperf.facts import EpochFacts, ProgressFacts
from aiperf.wire.messages import Begin, Phase, WorkloadRequest
from replica.trainer.channel import Reporter
from replica.trainer.frameworks import FRAMEWORKS
from tests.support.trainings.requests import workload_request
from workloads.data.sets import CUBES_A_CUBE
from workloads.datasets.science.ready import recipe_of
from workloads.datasets.science.synthesize import synthesize
from workloads.science import SCIENCE

STEPS = 4
"""The first one, which warms up caches, is not timed."""

KIB = 1024
LOWERED = ("classification", "regression")
"""Tasks of one loss, without loops."""


class Times(Reporter):
    """When each step of the epoch was over, and what the epoch measured."""

    def __init__(self) -> None:
        self.clock = SystemClock()
        self.ends: list[float] = []
        self.facts: EpochFacts | None = None

    def phase(self, phase: Phase) -> None:
        """The evaluation begins after the last step."""
        if phase == "evaluate":
            self.ends.append(self.clock.monotonic_s())

    def progress(self, facts: ProgressFacts) -> None:
        """One more step."""
        if not facts.images_evaluated:
            self.ends.append(self.clock.monotonic_s())

    def epoch(self, facts: EpochFacts) -> None:
        """Keep the measures."""
        self.facts = facts


def request_of(workload: str, folder: Path, batch: int) -> WorkloadRequest:
    """An epoch of the workload; progress is reported after each step."""
    size = SCIENCE.load(workload).official
    return workload_request(
        workload,
        folder,
        batch_size=batch,
        epochs=1,
        max_epochs=size.epochs,
        seed=1,
        size="official",
        learning_rate=size.schedule.learning_rate,
        progress_interval_s=1e-9,
        patience=size.epochs + 1,
    )


def train(workload: str, framework: str, batch: int) -> dict[str, float]:
    """Train an epoch in this process."""
    from replica.trainer.science import ReadyScience  # noqa: PLC0415  (loads Keras)

    own = FRAMEWORKS.load(framework)()
    collective = own.open_collective(1)
    own.configure(os.cpu_count() or 1, collective.local_rank)
    times = Times()
    with tempfile.TemporaryDirectory() as name:
        folder, need = Path(name) / "data", SCIENCE.load(workload).official.data
        parts = CUBES_A_CUBE if need.source == "cos-fields" else 1
        examples = -(-STEPS * batch // parts) * parts
        few = replace(need, train_examples=examples, validation_examples=parts)
        synthesize(recipe_of(few), folder, lambda done, total: None, workers=0)
        request = request_of(workload, folder, batch)
        began = times.clock.monotonic_s()
        ready = ReadyScience(own, request, collective, times.clock)
        built = times.clock.monotonic_s()
        ready.run(Begin(trial=1), times)
    assert times.facts is not None
    steps = [after - before for before, after in zip(times.ends, times.ends[1:], strict=False)]
    return {
        "first_s": built - began,
        "step_s": statistics.median(steps[: STEPS - 1]),
        "loss": times.facts.loss,
        "peak_bytes": float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB),
    }


def lowered(workload: str) -> float:
    """XLA's operations of forward and backward pass on one example."""
    os.environ["KERAS_BACKEND"] = "jax"
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    import jax  # noqa: PLC0415
    import keras  # noqa: PLC0415

    from replica.trainer.tasks import TASKS  # noqa: PLC0415

    size = SCIENCE.load(workload).official
    task = TASKS.load(size.task)(size.settings)
    trained = list(task.network.trainable_variables)
    others = list(task.network.non_trainable_variables)
    rest = [variable.value for variable in others]

    def loss(values: Any, inputs: Any, targets: Any) -> Any:
        known = [*zip(trained, values, strict=True), *zip(others, rest, strict=True)]
        with keras.StatelessScope(state_mapping=known):
            (losses,) = task.losses(inputs, targets)
        return losses.mean()

    zeros = [jax.numpy.zeros((1, *shape)) for shape in (task.input_shape, task.target_shape)]
    program = jax.jit(jax.value_and_grad(loss)).lower([variable.value for variable in trained], *zeros)
    return float(program.cost_analysis()["flops"])


def measured(workload: str, framework: str, batch: int) -> dict[str, float]:
    """All figures of a workload, each part in a process of its own."""
    size = SCIENCE.load(workload).official
    found = _apart("train", workload, framework, str(batch))
    found["counted"] = float(size.training_operations())
    if size.task in LOWERED:
        found |= _apart("lowered", workload)
        found["ratio"] = found["xla"] / found["counted"]
    return found


def _apart(*words: str) -> dict[str, float]:
    program = [sys.executable, "-m", "benchmarks.trainings.science_official", *words]
    done = subprocess.run(program, stdout=subprocess.PIPE, check=True, text=True)
    values: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return values


def main() -> None:
    """Measure and print, or do one part in this process."""
    if sys.argv[1:2] == ["train"]:
        print(json.dumps(train(sys.argv[2], sys.argv[3], int(sys.argv[4]))))
        return
    if sys.argv[1:2] == ["lowered"]:
        print(json.dumps({"xla": lowered(sys.argv[2])}))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", default="resnet-hep,hepcnn,resnet-cos,cosmoflow")
    parser.add_argument("--framework", default="tensorflow")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--format", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    found = {}
    for name in arguments.workload.split(","):
        found[name] = measured(name, arguments.framework, arguments.batch)
        if arguments.format == "table":
            print(name, *(f"{what}={value:.4g}" for what, value in found[name].items()), flush=True)
    if arguments.format == "json":
        print(json.dumps(found))


if __name__ == "__main__":
    main()
