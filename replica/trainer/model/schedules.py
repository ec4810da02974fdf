"""The optimiser of a scientific workload, from its schedule."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from aiperf.wire.messages import TrainRequest
from replica.trainer.model.optimisers import without_state
from workloads.science.contract import Schedule


@keras.saving.register_keras_serializable("aiperf")
class LearningRate(keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc]
    """A linear warm-up from 0, then a decay, over a fixed number of steps."""

    def __init__(self, schedule: Schedule, largest: float, steps: int) -> None:
        super().__init__()
        self._schedule = schedule
        self._largest = largest
        self._steps = max(1, steps)

    def __call__(self, step: Any) -> Any:
        """The rate of a step, from 0."""
        share = ops.cast(step, "float32") / self._steps
        rate = self._largest * self._decay(share)
        if self._schedule.warm_up:
            # The first step is not without effect.
            rising = (share + 1.0 / self._steps) / self._schedule.warm_up
            rate = rate * ops.minimum(rising, 1.0)
        return rate

    def _decay(self, share: Any) -> Any:
        schedule = self._schedule
        if schedule.decay == "linear":
            return ops.maximum(1.0 - share, 0.0)
        if schedule.decay == "cosine":
            after = ops.clip((share - schedule.warm_up) / (1.0 - schedule.warm_up), 0.0, 1.0)
            return schedule.last + (1.0 - schedule.last) * 0.5 * (1.0 + ops.cos(math.pi * after))
        factor = ops.ones_like(share)
        for start, value in schedule.steps:
            factor = ops.where(share >= start, value, factor)
        return factor

    def get_config(self) -> dict[str, Any]:
        """What Keras asks of a schedule; it is never read back."""
        return {"largest": self._largest, "steps": self._steps}


def build_scheduled(variables: Sequence[Any], schedule: Schedule, request: TrainRequest, steps: int, ranks: int) -> Any:
    """A Keras optimiser with its state.

    The rate grows with the ranks, which make the batch larger: in proportion for SGD (Goyal et al.
    2017), by the square root for Adam (Malladi et al. 2022).
    """
    name = schedule.optimiser if request.hybrid is None else request.hybrid.optimiser
    grown = ranks if name == "sgd" else math.sqrt(ranks)
    rate = LearningRate(schedule, request.learning_rate * grown, steps)
    if request.hybrid is not None:
        return without_state(rate, variables, schedule.clip)
    shared: dict[str, Any] = {"global_clipnorm": schedule.clip, "weight_decay": schedule.weight_decay or None}
    if schedule.optimiser == "sgd":
        optimiser = keras.optimizers.SGD(rate, momentum=schedule.momentum, name="sgd", **shared)
    else:
        optimiser = keras.optimizers.Adam(rate, beta_1=schedule.momentum, name="adam", **shared)
    if request.precision == "mixed_float16":
        optimiser = keras.optimizers.LossScaleOptimizer(optimiser, name="loss_scale")
    optimiser.build(list(variables))
    return optimiser
