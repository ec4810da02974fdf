"""Timed trainings. Keras takes the framework that is loaded before this module as its backend."""

import time
from collections.abc import Callable

from msgspec.structs import replace

from aiperf.clock import SystemClock
from aiperf.wire.messages import Begin
from benchmarks.trainings.timing import TrainClock, request_for
from replica.trainer.collectives.alone import AloneCollective
from replica.trainer.data.contract import DataSource
from replica.trainer.framework import CompiledSteps, Framework
from replica.trainer.model import builder
from replica.trainer.model.optimisers import build_optimiser
from replica.trainer.schedules import linear_rate
from replica.trainer.training import Training, TrainingInputs
from search_space.resnet import resnet
from workloads.classification import CLASSIFICATION


def trainer(
    framework: Framework,
    source: DataSource,
    precision: str,
    batch: int,
    seconds: Callable[[], float] = time.perf_counter,
) -> Callable[[], float]:
    """A function that trains an epoch and gives images/s of the training phase."""
    return trainer_and_steps(framework, source, precision, batch, seconds)[0]


def trainer_and_steps(
    framework: Framework,
    source: DataSource,
    precision: str,
    batch: int,
    seconds: Callable[[], float] = time.perf_counter,
    compiles: str = "auto",
) -> tuple[Callable[[], float], CompiledSteps]:
    """The same, compiled or not, with the steps that it does."""
    builder.set_up(precision, 1)
    facts = source.dataset
    model = builder.build_model(resnet(50, facts.image_size, facts.classes))
    request, collective = replace(request_for(precision, batch), compile=compiles), AloneCollective()
    optimiser = build_optimiser(model, request)
    steps = framework.compile(model, optimiser, CLASSIFICATION, collective, request)
    inputs = TrainingInputs(CLASSIFICATION, source, collective, request, linear_rate(request))
    training = Training(steps, inputs, SystemClock())
    training.warm_up()

    def run() -> float:
        clock = TrainClock(seconds)
        training.run(Begin(trial=1), clock)
        return float(facts.train_images / clock.seconds)

    return run, steps
