"""The optimiser of a training: gradient descent with momentum and a linear decay.

Paper, Table 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from aiperf.wire.messages import TrainRequest


def linear_decay(initial: float, max_epochs: int, steps_per_epoch: int) -> Any:
    """Learning rate by step: linear from `initial` to 0 at the last epoch (paper, Table 4)."""
    return keras.optimizers.schedules.PolynomialDecay(
        initial, decay_steps=max_epochs * steps_per_epoch, end_learning_rate=0.0, power=1.0
    )


def build_optimiser(model: Any, request: TrainRequest, steps_per_epoch: int) -> Any:
    """A Keras optimiser with its state, for the model's trainable variables.

    With float16 it scales the loss, dynamically (Micikevicius et al. 2018).
    """
    schedule = linear_decay(request.learning_rate, request.max_epochs, steps_per_epoch)
    if request.hybrid is not None:
        return without_state(schedule, model.trainable_variables)
    optimiser = keras.optimizers.SGD(schedule, momentum=request.momentum, name="sgd")
    if request.precision == "mixed_float16":
        optimiser = keras.optimizers.LossScaleOptimizer(optimiser, name="loss_scale")
    optimiser.build(model.trainable_variables)
    return optimiser


def without_state(schedule: Any, variables: Sequence[Any], clip: float | None = None) -> Any:
    """An optimiser that only knows its schedule, if parameter servers apply the gradients.

    `clip`: largest norm of the gradient of all variables.
    """
    optimiser = keras.optimizers.SGD(schedule, global_clipnorm=clip, name="schedule")
    optimiser.build(list(variables))
    return optimiser
