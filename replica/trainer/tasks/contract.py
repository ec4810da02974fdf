"""The contract of a task: the losses of a training step, and the measures of an evaluation.

A task is written in Keras layers and `keras.ops` alone, so that it trains on every framework.
Shapes are fixed but for the number of examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Measures = dict[str, float]
"""Qualities by name, such as {"accuracy": 0.87, "auc": 0.94}."""


@dataclass(frozen=True, slots=True)
class Part:
    """The variables that one loss trains. Most tasks have one part; a generative pair has two."""

    name: str
    variables: Sequence[Any]
    """Trainable Keras variables; no variable belongs to two parts."""


def trained_variables(task: Task) -> list[Any]:
    """The variables of all parts, in the order of their gradients."""
    return [variable for part in task.parts for variable in part.variables]


class Task(Protocol):
    """A task with its networks, built after Keras' backend is chosen.

    A batch is a pair: inputs (N, ...) float32 and targets (N, ...) float32.
    """

    @property
    def network(self) -> Any:
        """The Keras model that owns every variable of the task; its weights are checkpointed."""

    @property
    def parts(self) -> Sequence[Part]:
        """The parts, in the order of the losses."""

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one example, without the batch."""

    @property
    def target_shape(self) -> tuple[int, ...]:
        """Shape of one example's target, without the batch."""

    @property
    def correct(self) -> Any | None:
        """The counter that `losses` adds to (`model.correct`); None if it classifies nothing."""

    @property
    def columns(self) -> int:
        """Count of the numbers in a row of `rows`."""

    def losses(self, inputs: Any, targets: Any) -> tuple[Any, ...]:
        """The losses of a training step, each (N,) float32: one for each part.

        A part's variables follow the gradient of the mean of its loss. Moving statistics are
        updated on the way.
        """

    def rows(self, inputs: Any, targets: Any) -> Any:
        """The rows that an evaluation keeps, one of each example: (N, columns) float32."""

    def measures(self, rows: NDArray[np.float32]) -> Measures:
        """The measures of the rows of all evaluated examples of all ranks, (M, columns).

        Their order does not matter. It runs on the host, once an evaluation.
        """
