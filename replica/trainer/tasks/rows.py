"""The rows of evaluated examples, kept on the host until an epoch is measured."""

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float32]


class KeptRows:
    """The part of `TaskSteps` that keeps the rows of an evaluation."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._rows: list[Rows] = []

    def keep(self, rows: Rows) -> None:
        """Keep the rows of a batch, (N, columns)."""
        self._rows.append(rows)

    def take(self) -> Rows:
        """Take all rows since the last call, (M, columns)."""
        rows, self._rows = self._rows, []
        return np.concatenate([np.zeros((0, self._columns), np.float32), *rows])
