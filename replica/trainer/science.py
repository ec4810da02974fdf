"""The training of a scientific workload, built and warm before it begins."""

from typing import Any

import numpy as np
from keras import ops
from msgspec.structs import replace
from numpy.typing import NDArray

from aiperf.clock import Clock
from aiperf.errors import TrialFailedError
from aiperf.facts import EpochFacts
from aiperf.wire.messages import Begin, WorkloadRequest
from replica.trainer.channel import Reporter
from replica.trainer.collectives.contract import Collective
from replica.trainer.data import open_source
from replica.trainer.data.contract import Batches, RankShare
from replica.trainer.data.science.source import ScienceSource
from replica.trainer.framework import Framework, TaskSteps
from replica.trainer.hybrid.leading import training_of
from replica.trainer.hybrid.training import Trained
from replica.trainer.model import builder
from replica.trainer.model.optimisers import build_scheduled
from replica.trainer.schedules import ScheduledRate
from replica.trainer.tasks import TASKS
from replica.trainer.tasks.contract import Measures, Task, trained_variables
from replica.trainer.training import FinalQuality, TrainingInputs, built_facts
from workloads.contract import Batch, Sums
from workloads.data import find_set
from workloads.science import SCIENCE
from workloads.science.contract import DataNeeds, WorkloadSize

# The workload as the training loop sees it: measures of rows in place of sums of metrics.


class MeasuredWorkload:
    """The workload of a training whose rows become the measures of an epoch (`TrainedWorkload`)."""

    def __init__(
        self, size: WorkloadSize, task: Task, steps: TaskSteps, collective: Collective, stops_at_target: bool
    ) -> None:
        self._size = size
        self._stops_at_target = stops_at_target
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

        Raises TrialFailedError ("nan") if a row, a weight or a measure is not finite.
        """
        rows = self._steps.take_rows()
        if not all(np.isfinite(values).all() for values in self._steps.weights()):
            # Boxes and scores that are NaN count as not found, so rows may be finite all the same.
            # Marked in the rows, all ranks see it and fail alike.
            rows = np.full_like(rows, np.nan)
        rows = gather_rows(self._collective, rows)
        if not np.isfinite(rows).all():
            raise TrialFailedError("nan", f"weights or outputs are not finite in epoch {epoch}")
        measures = self._task.measures(rows)
        for name, value in measures.items():
            if not np.isfinite(value):
                raise TrialFailedError("nan", f"{name} is {value} in epoch {epoch}")
        return measures

    def reached(self, facts: EpochFacts) -> bool:
        """True if the training ends at the target, and the epoch's measures are at or beyond it."""
        return self._stops_at_target and facts.measures is not None and self._size.reached(facts.measures)


class MeasuredTraining:
    """The quality of a workload on training examples (`FinalQuality`)."""

    counted = True

    def __init__(self, workload: MeasuredWorkload, source: ScienceSource) -> None:
        self._workload = workload
        self._source = source

    @property
    def images(self) -> int:
        """Number of sampled examples: that of the validation examples, or all if fewer train."""
        return self._source.sampled_images

    def batches(self, batch_size: int, share: RankShare) -> Batches:
        """Batches of the rank's part of the sample."""
        return self._source.sampled_batches(batch_size, share)

    def add(self, facts: EpochFacts, evaluated: Sums) -> EpochFacts:
        """Add the measures of the sample to the facts; its examples count as evaluated."""
        return replace(
            facts,
            images_evaluated=facts.images_evaluated + evaluated.examples,
            training_measures=self._workload.measures(facts.epoch),
            sampled_images=evaluated.examples,
        )


class MeasuredTest:
    """The quality of a workload on the test split (`FinalQuality`).

    No rule asks for it, and no score counts it: sets of any size may have a test split.
    """

    counted = False

    def __init__(self, workload: MeasuredWorkload, source: ScienceSource) -> None:
        self._workload = workload
        self._source = source

    @property
    def images(self) -> int:
        """Number of test examples."""
        return self._source.dataset.test_images

    def batches(self, batch_size: int, share: RankShare) -> Batches:
        """Batches of the rank's part of the test examples."""
        return self._source.test_batches(batch_size, share)

    def add(self, facts: EpochFacts, evaluated: Sums) -> EpochFacts:
        """Add the measures of the test examples to the facts, and their number."""
        return replace(facts, test_images=evaluated.examples, test_measures=self._workload.measures(facts.epoch))


def gather_rows(collective: Collective, rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Collect the rows of all ranks by rank, (sum of M, columns), on every rank; exact.

    It is a sum over ranks in which each row is on one rank, and 0 on the others: every framework
    has an all-reduce, and adding zeros does not round.
    """
    if collective.size == 1:
        return rows
    counts = np.zeros(collective.size, np.float32)
    counts[collective.rank] = len(rows)
    lengths = _summed(collective, counts, "counts").astype(np.int64)
    start = int(lengths[: collective.rank].sum())
    placed = np.zeros((int(lengths.sum()), rows.shape[1]), np.float32)
    # Each rank has a range of its own, by the numbers of the ranks before it.
    placed[start : start + len(rows)] = rows
    return _summed(collective, placed, "rows")


def _summed(collective: Collective, values: NDArray[np.float32], name: str) -> NDArray[np.float32]:
    (total,) = collective.sum_tensors([ops.convert_to_tensor(values)], name)
    found: NDArray[np.float32] = np.asarray(ops.convert_to_numpy(total))
    return found


class ReadyScience:
    """Networks, data and compiled steps of one request. Raises TrialFailedError or AiperfError."""

    def __init__(self, framework: Framework, request: WorkloadRequest, collective: Collective, clock: Clock) -> None:
        size = SCIENCE.load(request.workload).size(request.size)
        dataset = find_set(size.data.source, request.data_dir)
        _check_shape(size.data, dataset.input_shape)
        source = open_source(request, dataset)
        assert isinstance(source, ScienceSource)
        # Ranks draw different dropout masks; the weights are rank 0's.
        builder.set_up(request.precision, request.seed + collective.number)
        task = TASKS.load(size.task)(size.settings)
        variables = trained_variables(task)
        optimiser = build_scheduled(variables, size.schedule, request)
        compiled = framework.compile_task(task, optimiser, collective, request)
        workload = MeasuredWorkload(size, task, compiled, collective, request.stops_at_target)
        trained = Trained(task.network, variables, size.schedule.weight_decay)
        self._groups = request.hybrid.groups if request.hybrid is not None else 1
        self._rate = ScheduledRate(size.schedule, request, collective.size)
        finally_measured: tuple[FinalQuality, ...] = (MeasuredTraining(workload, source),)
        if dataset.test_images:
            finally_measured += (MeasuredTest(workload, source),)
        inputs = TrainingInputs(workload, source, collective, request, self._rate, finally_measured)
        self._training = training_of(compiled, inputs, trained, clock)
        self._training.warm_up()
        compiled.take_rows()  # of the blank example
        architecture = next(iter(size.networks.values()))().hash
        self.built = built_facts(framework, collective, task.network, compiled, architecture, dataset.fingerprint)

    def run(self, begin: Begin, report: Reporter) -> bool:
        """Train; True if the target ended it. Raises TrialFailedError."""
        if begin.first_ranks is not None:
            # They are those of all groups, and a rate follows those of one.
            self._rate.ranks = begin.first_ranks // self._groups
        return self._training.run(begin, report)


def _check_shape(needs: DataNeeds, found: tuple[int, ...]) -> None:
    if found != needs.input_shape:
        raise TrialFailedError("input", f"the data set has examples of {found}; the workload needs {needs.input_shape}")
