"""Weights that become NaN in the last step of a training: every task fails with the same kind."""

from typing import Any

import keras
import numpy as np
import pytest
from numpy.typing import NDArray

from aiperf.errors import TrialFailedError
from replica.trainer.collectives.alone import AloneCollective
from replica.trainer.model.builder import set_up
from replica.trainer.science import MeasuredWorkload
from replica.trainer.tasks import TASKS
from tests.support.trainings.tasks import SMALL, examples
from workloads.contract import Sums
from workloads.science import SCIENCE


class Steps:
    """The part of `TaskSteps` that measures ask, without compilation."""

    def __init__(self, task: Any, batch: Any) -> None:
        self._task = task
        self._batch = batch

    def take_rows(self) -> NDArray[np.float32]:
        return np.array(keras.ops.convert_to_numpy(self._task.rows(*self._batch)))

    def weights(self) -> list[NDArray[Any]]:
        weights: list[NDArray[Any]] = self._task.network.get_weights()
        return weights


@pytest.mark.parametrize("name", list(TASKS))
def test_weights_that_are_nan_fail_a_training_by_that_kind(name: str) -> None:
    set_up("float32", seed=1)
    size = next(each for each in (SCIENCE.load(name).rehearsal for name in SCIENCE) if each.task == name)
    task = TASKS.load(name)(SMALL[name])
    steps: Any = Steps(task, examples(name, 4))
    workload: Any = MeasuredWorkload(size, task, steps, AloneCollective(), stops_at_target=True)
    assert np.isfinite(list(workload.measures(1).values())).all()
    last = task.parts[0].variables[-1]
    last.assign(np.full(last.shape, np.nan, np.float32))
    with pytest.raises(TrialFailedError, match="not finite in epoch 2") as caught:
        workload.facts(2, 0.1, Sums(4, 1.0), Sums(4, 0.0))
    assert caught.value.kind == "nan"
