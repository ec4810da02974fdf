"""A training that is built and warm before it begins.

Readying it does not need an accelerator's whole memory.
"""

from __future__ import annotations

from pathlib import Path

from aiperf.clock import Clock
from aiperf.messages import Begin, TrainRequest
from replica.trainer.channel import Reporter
from replica.trainer.collectives.contract import Collective
from replica.trainer.data import open_source
from replica.trainer.framework import Framework
from replica.trainer.model import builder, optimisers, weights
from replica.trainer.training import Training, TrainingInputs, steps_for
from workloads import Workload


class ReadyTraining:
    """Model, input pipeline and compiled steps of one request.

    Raises TrialFailedError or AiperfError.
    """

    def __init__(
        self, framework: Framework, workload: Workload, request: TrainRequest, collective: Collective, clock: Clock
    ) -> None:
        self._request = request
        self._collective = collective
        dataset = workload.dataset(request)
        self._architecture = workload.architecture(request, dataset)
        source = open_source(request, dataset)
        # Ranks draw different dropout masks; the weights are rank 0's.
        builder.set_up(request.precision, request.seed + collective.rank)
        self._model = builder.build_model(self._architecture)
        builder.check_model(self._model, self._architecture)
        train_steps = steps_for(dataset.train_images, request, collective.size)
        optimiser = optimisers.build_optimiser(self._model, request, train_steps)
        steps = framework.compile(self._model, optimiser, workload, collective, request)
        self._training = Training(steps, TrainingInputs(workload, source, collective, request), clock)
        self._training.warm_up()

    def run(self, begin: Begin, report: Reporter) -> bool:
        """Train; True if patience ended it. Raises TrialFailedError."""
        if begin.inherited is not None and self._collective.rank == 0:
            inherited = weights.inherited(begin.inherited, self._architecture, self._request.seed)
            weights.write_model(self._model, inherited)
        early = self._training.run(begin, report)
        best = self._training.best_weights
        if begin.save_weights_path is not None and best is not None and self._collective.rank == 0:
            report.phase("checkpoint")
            self._model.set_weights(best)
            weights.save(Path(begin.save_weights_path), weights.read_model(self._model, self._architecture))
        return early
