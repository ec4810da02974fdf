"""A training that is built and warm before it begins.

Readying it does not need an accelerator's whole memory.
"""

from functools import partial
from pathlib import Path

from aiperf.clock import Clock
from aiperf.errors import TrialFailedError
from aiperf.wire.messages import ArchitectureRequest, Begin
from replica.trainer.channel import Reporter
from replica.trainer.collectives.contract import Collective
from replica.trainer.data import open_source
from replica.trainer.data.sample import fingerprint_of
from replica.trainer.framework import Framework
from replica.trainer.hybrid.leading import training_of
from replica.trainer.hybrid.training import Trained
from replica.trainer.model import builder, built, optimisers, weights
from replica.trainer.model.weights import BestWeights
from replica.trainer.schedules import linear_rate
from replica.trainer.training import TrainingInputs, built_facts
from workloads.contract import Workload


class ReadyTraining:
    """Model, input pipeline and compiled steps of one request.

    Raises TrialFailedError or AiperfError.
    """

    def __init__(
        self,
        framework: Framework,
        workload: Workload,
        request: ArchitectureRequest,
        collective: Collective,
        clock: Clock,
    ) -> None:
        self._request = request
        self._collective = collective
        dataset = workload.dataset(request)
        self._architecture = workload.architecture(request, dataset)
        source = open_source(request, dataset, framework.pipeline)
        # Ranks draw different dropout masks; the weights are rank 0's.
        builder.set_up(request.precision, request.seed + collective.number)
        self._model = builder.build_model(self._architecture)
        builder.check_model(self._model, self._architecture)
        # Read back from the model: what is counted must be what trains, not what was asked for.
        found = built.architecture_of(self._model, self._architecture).hash
        if found != self._architecture.hash:
            raise TrialFailedError("mismatch", f"the built model is {found}, not {self._architecture.hash}")
        optimiser = optimisers.build_optimiser(self._model, request)
        steps = framework.compile(self._model, optimiser, workload, collective, request)
        trained = Trained(self._model, self._model.trainable_variables)
        inputs = TrainingInputs(workload, source, collective, request, linear_rate(request))
        self._training = training_of(steps, inputs, trained, clock)
        self._training.warm_up()
        fingerprint = fingerprint_of(request, dataset, collective.rank, collective.size)
        self.built = built_facts(framework, collective, self._model, steps, found, fingerprint)

    def run(self, begin: Begin, report: Reporter) -> bool:
        """Train, or evaluate weights; True if patience ended it. Raises TrialFailedError."""
        first = self._collective.is_leader
        if begin.inherited is not None and first:
            inherited = weights.inherited(begin.inherited, self._architecture, self._request.seed)
            weights.write_model(self._model, inherited)
        # An audit: given weights are evaluated as they are, after a few steps if these are asked
        # for.
        if begin.evaluate_path is not None:
            if begin.only_steps is not None:
                self._training.run(begin, report)
            if self._collective.rank == 0:
                weights.write_model(self._model, weights.load(Path(begin.evaluate_path), self._architecture))
            self._training.evaluate(report, begin.evaluate_known)
            return False
        if begin.save_weights_path is None or begin.only_steps is not None or not first:
            return self._training.run(begin, report)
        kept = BestWeights(Path(begin.save_weights_path), partial(weights.by_name, self._model, self._architecture))
        try:
            early = self._training.run(begin, report, kept)
            report.phase("checkpoint")
        finally:
            kept.close()
        return early
