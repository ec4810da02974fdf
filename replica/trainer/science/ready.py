"""The training of a scientific workload, built and warm before it begins."""

from __future__ import annotations

from aiperf.clock import Clock
from aiperf.errors import TrialFailedError
from aiperf.facts import BuiltFacts
from aiperf.source_code import source_hash
from aiperf.wire.messages import Begin, TrainRequest
from replica.trainer.channel import Reporter
from replica.trainer.collectives.contract import Collective
from replica.trainer.data import open_source
from replica.trainer.data.science.source import ScienceSource
from replica.trainer.framework import Framework
from replica.trainer.hybrid.choice import training_of
from replica.trainer.hybrid.training import Trained
from replica.trainer.model import builder, built
from replica.trainer.model.optimisers import build_scheduled
from replica.trainer.schedules import scheduled_rate
from replica.trainer.science.measured import MeasuredTraining, MeasuredWorkload
from replica.trainer.settings import framework_variables
from replica.trainer.tasks import TASKS
from replica.trainer.tasks.contract import trained_variables
from replica.trainer.training import TrainingInputs
from workloads.data import find_set
from workloads.science import SCIENCE
from workloads.science.contract import DataNeeds


class ReadyScience:
    """Networks, data and compiled steps of one request. Raises TrialFailedError or AiperfError."""

    def __init__(self, framework: Framework, request: TrainRequest, collective: Collective, clock: Clock) -> None:
        assert request.workload is not None
        size = SCIENCE.load(request.workload).size(request.size)
        dataset = find_set(size.data.source, request.data_dir)
        _check_shape(size.data, dataset.input_shape)
        source = open_source(request, dataset)
        assert isinstance(source, ScienceSource)
        # Ranks draw different dropout masks; the weights are rank 0's.
        builder.set_up(request.precision, request.seed + collective.rank)
        task = TASKS.load(size.task)(size.settings)
        self.built = BuiltFacts(
            architecture=next(iter(size.networks.values()))().hash,
            compute=built.compute_types(task.network),
            devices=collective.gather(framework.device(collective.local_rank)),
            framework=framework.name(),
            source_hash=source_hash(),
            environment=framework_variables(),
            fingerprint=dataset.fingerprint,
        )
        """What rank 0 has built; devices are those of all ranks."""
        variables = trained_variables(task)
        optimiser = build_scheduled(variables, size.schedule, request)
        compiled = framework.compile_task(task, optimiser, collective, request)
        workload = MeasuredWorkload(size, task, compiled, collective)
        trained = Trained(task.network, variables, size.schedule.weight_decay)
        rate = scheduled_rate(size.schedule, request, collective.size)
        inputs = TrainingInputs(workload, source, collective, request, rate, MeasuredTraining(workload, source))
        self._training = training_of(compiled, inputs, trained, clock)
        self._training.warm_up()
        compiled.take_rows()  # of the blank example

    def run(self, begin: Begin, report: Reporter) -> bool:
        """Train; True if the target ended it. Raises TrialFailedError."""
        return self._training.run(begin, report)


def _check_shape(needs: DataNeeds, found: tuple[int, ...]) -> None:
    if found != needs.input_shape:
        raise TrialFailedError("input", f"the data set has examples of {found}; the workload needs {needs.input_shape}")
