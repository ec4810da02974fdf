"""The optimisers of trainings. Their learning rate is set before each step (`CompiledSteps`).

Paper, Table 4.
"""

from collections.abc import Sequence
from typing import Any

import keras

from aiperf.wire.messages import ArchitectureRequest, TrainRequest
from workloads.science.contract import Schedule


def build_optimiser(model: Any, request: ArchitectureRequest) -> Any:
    """Build SGD with momentum, with its state, for the model's trainable variables."""
    if request.hybrid is not None:
        return _without_state(model.trainable_variables, request)
    optimiser = keras.optimizers.SGD(request.learning_rate, momentum=request.momentum, name="sgd")
    return _built(optimiser, model.trainable_variables, request)


def build_scheduled(variables: Sequence[Any], schedule: Schedule, request: TrainRequest) -> Any:
    """Build the optimiser of a scientific workload, with its state."""
    if request.hybrid is not None:
        return _without_state(variables, request, schedule.clip)
    shared: dict[str, Any] = {"global_clipnorm": schedule.clip, "weight_decay": schedule.weight_decay or None}
    if schedule.optimiser == "sgd":
        optimiser = keras.optimizers.SGD(request.learning_rate, momentum=schedule.momentum, name="sgd", **shared)
    else:
        optimiser = keras.optimizers.Adam(request.learning_rate, beta_1=schedule.momentum, name="adam", **shared)
    return _built(optimiser, variables, request)


def _built(optimiser: Any, variables: Sequence[Any], request: TrainRequest) -> Any:
    """Build the state; with float16, scale the loss dynamically (Micikevicius et al. 2018)."""
    if request.precision == "mixed_float16":
        optimiser = keras.optimizers.LossScaleOptimizer(optimiser, name="loss_scale")
    optimiser.build(list(variables))
    return optimiser


def _without_state(variables: Sequence[Any], request: TrainRequest, clip: float | None = None) -> Any:
    """Build an optimiser that applies no gradient: parameter servers do.

    `clip` is the largest norm of the gradient of all variables.
    """
    return _built(keras.optimizers.SGD(0.0, global_clipnorm=clip, name="schedule"), variables, request)
