"""Parameters of a universe: squared error in training, absolute error as the quality."""

from typing import Any

import numpy as np
from keras import ops
from numpy.typing import NDArray

from replica.trainer.tasks.contract import Measures
from replica.trainer.tasks.single import SingleNetwork
from workloads.settings.single import OneNetwork


class Regression(SingleNetwork):
    """Regression of volumes to numbers in [-1, 1]; targets are the numbers, (N, P)."""

    def __init__(self, settings: OneNetwork) -> None:
        super().__init__(settings)
        self.target_shape = (int(self.network.output_shape[-1]),)
        self.columns = self.target_shape[0] + 1

    def losses(self, inputs: Any, targets: Any) -> tuple[Any, ...]:
        """The mean squared error over the numbers of an example (CosmoFlow in MLPerf HPC)."""
        outputs = ops.cast(self.network(inputs, training=True), "float32")
        return (ops.mean(ops.square(outputs - targets), axis=1),)

    def rows(self, inputs: Any, targets: Any) -> Any:
        """The rows: the absolute error of each number, then the loss."""
        outputs = ops.cast(self.network(inputs, training=False), "float32")
        errors = ops.absolute(outputs - targets)
        return ops.concatenate([errors, ops.mean(ops.square(errors), axis=1, keepdims=True)], axis=1)

    def measures(self, rows: NDArray[np.float32]) -> Measures:
        """The mean absolute error over all numbers, of each number, and the mean squared error."""
        means = rows.astype(np.float64).mean(axis=0)
        single = {f"error_of_{number}": float(value) for number, value in enumerate(means[:-1], start=1)}
        return {"mean_absolute_error": float(np.mean(means[:-1])), **single, "loss": float(means[-1])}
