"""A training step under TensorFlow's profiler: `python -m replica.profile.step SETTINGS`.

SETTINGS is JSON (`ProfileSettings`); the result goes to its `output` as JSON. `aiperf profile`
calls it.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from dataclasses import asdict
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from aiperf.clock import SystemClock
from aiperf.config.datasets import find_dataset
from aiperf.errors import AiperfError
from aiperf.messages import TrainRequest
from aiperf.network.architecture import Architecture
from aiperf.network.json_files import read_architecture
from aiperf.network.operations import count
from replica.profile import xplane
from replica.profile.settings import ProfileSettings
from replica.trainer.collectives.alone import AloneCollective
from replica.trainer.data import open_source
from replica.trainer.data.contract import RankShare
from replica.trainer.framework import CompiledSteps
from replica.trainer.model import builder
from replica.trainer.tensorflow.steps import TensorFlowSteps
from search_space.resnet import resnet
from workloads.classification.workload import CLASSIFICATION

WARM_UP_STEPS = 2


def run_profile(settings: ProfileSettings) -> dict[str, Any]:
    """Train a few steps under the profiler.

    Raises AiperfError if data or architecture do not fit.
    """
    architecture = _architecture(settings)
    request = _request(settings)
    model, optimizer, steps = _compile(architecture, request)
    source = open_source(request, CLASSIFICATION.dataset(request))
    batches = source.train_batches(settings.batch_size, 1, 1, RankShare())
    whole = [pair for pair in islice(batches, WARM_UP_STEPS) if int(pair[0].shape[0]) == settings.batch_size]
    if len(whole) < WARM_UP_STEPS:
        raise AiperfError(f"the data set has no {WARM_UP_STEPS + 1} whole batches of {settings.batch_size} images")
    for images, labels in whole:
        steps.train(images, labels).numpy()
    with tempfile.TemporaryDirectory() as folder:
        seconds, done = _record(steps, batches, settings.steps, folder)
        space = xplane.load(Path(folder))
    times = xplane.operation_times(space)
    memory = xplane.memory_at_peak(space)
    known = {
        "weights": _bytes(model.variables),
        "optimiser state": _bytes(optimizer.variables),
        "input": sum(int(np.asarray(part).nbytes) for part in whole[0]),
    }
    return {
        "architecture": architecture.hash,
        "image_operations": count(architecture).operations.total,
        "settings": settings.model_dump(exclude={"output"}),
        "steps": done,
        "step_s": statistics.median(seconds),
        "operations": [{**asdict(item), "seconds": item.seconds / done, "calls": item.calls / done} for item in times],
        "memory_bytes": {**known, **memory},
    }


def _compile(architecture: Architecture, request: TrainRequest) -> tuple[Any, Any, CompiledSteps]:
    """Model, optimiser and steps. Their names are those that `xplane.phase_of` looks for."""
    builder.set_up(request.precision, request.seed)
    model = builder.build_model(architecture)
    builder.check_model(model, architecture)
    optimizer: Any = keras.optimizers.SGD(request.learning_rate, momentum=request.momentum, name="sgd")
    if request.precision == "mixed_float16":
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer, name="loss_scale")
    optimizer.build(model.trainable_variables)
    return model, optimizer, TensorFlowSteps(model, optimizer, CLASSIFICATION, AloneCollective(), request)


def _record(steps: CompiledSteps, batches: Any, wanted: int, folder: str) -> tuple[list[float], int]:
    """Seconds of each step, including the fetching of its batch, and the number of steps."""
    clock, seconds = SystemClock(), list[float]()
    tf.profiler.experimental.start(folder)
    try:
        for number in range(wanted):
            began = clock.monotonic_s()
            with tf.profiler.experimental.Trace("train", step_num=number, _r=1):
                pair = next(batches, None)
                if pair is None:
                    break
                steps.train(*pair).numpy()
            seconds.append(clock.monotonic_s() - began)
    finally:
        tf.profiler.experimental.stop()
    if not seconds:
        raise AiperfError("the data set is used up before the first step that counts: choose a smaller batch")
    return seconds, len(seconds)


def _architecture(settings: ProfileSettings) -> Architecture:
    if settings.architecture is not None:
        return read_architecture(Path(settings.architecture))
    facts = find_dataset(settings.dataset, settings.data_dir)
    return resnet(50, facts.image_size, facts.classes)


def _request(settings: ProfileSettings) -> TrainRequest:
    return TrainRequest(
        architecture_path="", dataset=settings.dataset, data_dir=settings.data_dir,
        synthetic_input=settings.synthetic_input, batch_size=settings.batch_size, epochs=1, max_epochs=60, patience=9,
        seed=1, learning_rate=0.1, momentum=0.9, label_smoothing=0.1, precision=settings.precision, xla=settings.xla,
        progress_interval_s=5.0,
    )  # fmt: skip


def _bytes(variables: list[Any]) -> int:
    return sum(prod(variable.shape) * tf.as_dtype(variable.dtype).size for variable in variables)


def main() -> int:
    """Profile as the first argument says; on failure give 1, with a message on standard error."""
    settings = ProfileSettings.model_validate_json(sys.argv[1])
    try:
        result = run_profile(settings)
    except AiperfError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    Path(settings.output).write_text(json.dumps(result), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
