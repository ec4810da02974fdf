"""A scientific workload as the training loop sees it."""

from __future__ import annotations

from typing import Any

import numpy as np
from keras import ops
from msgspec.structs import replace
from numpy.typing import NDArray

from aiperf.errors import TrialFailedError
from aiperf.facts import EpochFacts
from replica.trainer.collectives.contract import Collective
from replica.trainer.data.contract import Batches, RankShare
from replica.trainer.data.science.source import ScienceSource
from replica.trainer.framework import TaskSteps
from replica.trainer.tasks.contract import Measures, Task
from workloads.contract import Batch, Sums
from workloads.science.contract import WorkloadSize


class MeasuredWorkload:
    """Turns the rows of an evaluation into the measures of an epoch (`TrainedWorkload`)."""

    def __init__(self, size: WorkloadSize, task: Task, steps: TaskSteps, collective: Collective) -> None:
        self._size = size
        self._task = task
        self._steps = steps
        self._collective = collective

    def blank(self, examples: int, dataset: Any) -> Batch:
        """Examples of zeros, with targets that a loss can be computed from."""
        inputs = np.zeros((examples, *self._task.input_shape), np.float32)
        return inputs, np.full((examples, *self._task.target_shape), self._size.data.blank_target, np.float32)

    def facts(self, epoch: int, learning_rate: float, trained: Sums, evaluated: Sums) -> EpochFacts:
        """The facts of an epoch, the same on every rank; all ranks call it together.

        `validation_loss` is 0 for tasks without one. Raises TrialFailedError ("nan") if a measure
        is not finite.
        """
        measures = self.measures(epoch)
        return EpochFacts(
            epoch=epoch,
            images_trained=trained.examples,
            images_evaluated=evaluated.examples,
            loss=trained.loss / max(1, trained.examples),
            validation_loss=measures.get("loss", 0.0),
            learning_rate=learning_rate,
            measured_quality=self._size.quality(measures),
            measures=measures,
        )

    def measures(self, epoch: int) -> Measures:
        """The measures of what was evaluated since the last call; all ranks call it together.

        Raises TrialFailedError ("nan") if one is not finite.
        """
        measures = self._task.measures(gather_rows(self._collective, self._steps.take_rows()))
        for name, value in measures.items():
            if not np.isfinite(value):
                raise TrialFailedError("nan", f"{name} is {value} in epoch {epoch}")
        return measures

    def reached(self, facts: EpochFacts) -> bool:
        """True if the epoch's measures are at or beyond the target."""
        return facts.measures is not None and self._size.reached(facts.measures)


class MeasuredTraining:
    """The quality of a workload on training examples (`TrainingQuality`)."""

    def __init__(self, workload: MeasuredWorkload, source: ScienceSource) -> None:
        self._workload = workload
        self._source = source

    @property
    def images(self) -> int:
        """As many as there are validation examples; all if there are fewer."""
        return self._source.sampled_images

    def batches(self, batch_size: int, share: RankShare) -> Batches:
        """The rank's part of the sample."""
        return self._source.sampled_batches(batch_size, share)

    def add(self, facts: EpochFacts, evaluated: Sums) -> EpochFacts:
        """The facts with the measures of the sample, whose examples are evaluated ones."""
        total = facts.images_evaluated + evaluated.examples
        return replace(facts, images_evaluated=total, training_measures=self._workload.measures(facts.epoch))


def gather_rows(collective: Collective, rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """The rows of all ranks by rank, (sum of M, columns), on every rank; exact.

    A sum over ranks in which every row is on one rank, and 0 on the others.
    """
    if collective.size == 1:
        return rows
    counts = np.zeros(collective.size, np.float32)
    counts[collective.rank] = len(rows)
    lengths = _summed(collective, counts, "counts").astype(np.int64)
    start = int(lengths[: collective.rank].sum())
    placed = np.zeros((int(lengths.sum()), rows.shape[1]), np.float32)
    placed[start : start + len(rows)] = rows
    return _summed(collective, placed, "rows")


def _summed(collective: Collective, values: NDArray[np.float32], name: str) -> NDArray[np.float32]:
    (total,) = collective.sum_tensors([ops.convert_to_tensor(values)], name)
    found: NDArray[np.float32] = np.asarray(ops.convert_to_numpy(total))
    return found
