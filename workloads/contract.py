"""The contract of a workload.

It imports no framework: losses and metrics are Keras functions by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from aiperf.config.datasets import Dataset
from aiperf.facts import EpochFacts
from aiperf.network.architecture import Architecture
from aiperf.wire.messages import ArchitectureRequest

Batch = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Inputs and labels of a batch."""


@dataclass(frozen=True, slots=True)
class PerExample:
    """A function of `keras.losses` or `keras.metrics` that gives one number per example: (N,).

    It is called with labels, outputs and the settings. Keras 3 computes it on every framework.
    """

    name: str
    settings: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums over the examples of one epoch, of all ranks."""

    examples: int
    loss: float
    metrics: tuple[float, ...] = ()
    """Sums of `Workload.metrics`, in their order; empty after training, which computes none."""

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> Sums:
        """Make sums of the values that compiled steps give: loss, metrics, examples."""
        loss, *metrics, examples = values.tolist()
        return cls(round(examples), loss, tuple(metrics))


class TrainedWorkload(Protocol):
    """A workload as the training loop sees it."""

    def blank(self, examples: int, dataset: Any) -> Batch:
        """Make a batch of this many blank examples with valid labels, or an empty one."""

    def reached(self, facts: EpochFacts) -> bool:
        """True if an epoch ends the training at its target."""

    def facts(self, epoch: int, learning_rate: float, trained: Sums, evaluated: Sums) -> EpochFacts:
        """The facts of a completed epoch; the losses become means per example.

        Without training, as in an evaluation alone, the loss is 0.
        """


class Workload(TrainedWorkload, Protocol):
    """One kind of training."""

    @property
    def metrics(self) -> tuple[PerExample, ...]:
        """Metrics that are summed over the validation examples, in addition to the loss."""

    def training_loss(self, request: ArchitectureRequest) -> PerExample:
        """The loss that is minimised."""

    def validation_loss(self, request: ArchitectureRequest) -> PerExample:
        """The loss that is reported for the validation examples."""

    def dataset(self, request: ArchitectureRequest) -> Dataset:
        """The data set that a request names. Raises DatasetError."""

    def architecture(self, request: ArchitectureRequest, dataset: Dataset) -> Architecture:
        """The architecture that a request names.

        Raises ArchitectureError, and TrialFailedError ("build") if it does not fit the data set or
        its hash is not the request's.
        """
