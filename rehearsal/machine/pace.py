"""The seconds that a training takes on a machine.

A step takes as long as its operations at the accelerator's rate, a launch, and the part of the
all-reduce that the backward pass does not hide; or, if that is longer, as long as the node's input
pipeline needs for its images. All-reduce by latency and bandwidth as in Thakur, Rabenseifner and
Gropp, Optimization of Collective Communication Operations in MPICH (2005), section 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2

from aiperf.config.datasets import Dataset
from aiperf.network.operations import Operations
from rehearsal.machine.file import AllReduceSection, MachineFile

BYTES_OF_GRADIENT = 4


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds of an epoch, and where they go."""

    training_s: float
    evaluation_s: float
    compute_s: float
    """Of the training: the accelerator works on counted operations."""
    launch_s: float
    exchange_s: float
    """All-reduce that nothing hides."""
    input_s: float
    """Waiting for images."""

    @property
    def epoch_s(self) -> float:
        """Training and evaluation."""
        return self.training_s + self.evaluation_s


def all_reduce_s(settings: AllReduceSection, ranks: int, weights: int) -> float:
    """Seconds to sum the gradients of `weights` float32 weights over the ranks of a replica."""
    if ranks < 2:
        return 0.0
    size = weights * BYTES_OF_GRADIENT
    if settings.algorithm == "ring":
        return 2 * (ranks - 1) * (settings.latency_s + size / ranks / settings.bytes_per_s)
    return 2 * ceil(log2(ranks)) * (settings.latency_s + size / settings.bytes_per_s)


def pace_of(machine: MachineFile, cost: Operations, weights: int, batch_size: int, dataset: Dataset) -> Pace:
    """The pace of a training of `cost` operations per image, with `batch_size` images per rank."""
    ranks, step = machine.node.accelerators, machine.step
    steps = ceil(dataset.train_images / (batch_size * ranks))
    images = dataset.train_images / steps
    compute_s = images / ranks * cost.total / step.operations_per_s
    exchange_s = (1 - machine.all_reduce.overlap) * all_reduce_s(machine.all_reduce, ranks, weights)
    busy_s = compute_s + step.seconds + exchange_s
    step_s = max(busy_s, images / machine.input.images_per_s)
    rate = step.evaluation_operations_per_s or step.operations_per_s
    evaluated = dataset.validation_images
    evaluation_s = max(
        evaluated / ranks * cost.forward / rate + ceil(evaluated / (batch_size * ranks)) * step.seconds,
        evaluated / machine.input.images_per_s,
    )
    return Pace(
        training_s=steps * step_s,
        evaluation_s=evaluation_s,
        compute_s=steps * compute_s,
        launch_s=steps * step.seconds,
        exchange_s=steps * exchange_s,
        input_s=steps * (step_s - busy_s),
    )
