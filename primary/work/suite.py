"""A scientific suite: every model of every workload once; free replicas take the next one."""

from collections import deque
from collections.abc import Iterator

from aiperf.config.settings import RunConfig
from aiperf.records.entries import TrialLedger
from aiperf.records.ledger import Ledger
from aiperf.seeds import fold_seed
from aiperf.wire.messages import Finished, Job
from primary.work.interrupted import RESUMABLE, Interrupted, may_go_on, trainings

Model = tuple[str, int]
"""A workload and the number of an instance."""


class Suite:
    """The models that are left to train, continued from what a ledger records of them."""

    def __init__(self, config: RunConfig, ledger: Ledger) -> None:
        self._seed = config.run.seed
        self._last_trial = max((ledger.fences.last_trial, *ledger.trials))
        issued = trainings(ledger)
        known = {_model_of(training[0]) for training in issued}
        self._left = deque(model for model in _models(config) if model not in known)
        self._interrupted = Interrupted()
        self._in_progress: set[int] = set()
        for training in issued:
            if may_go_on(training[-1]):
                self._interrupted.add(training)

    @property
    def complete(self) -> bool:
        """True if every model is trained, or given up."""
        return not (self._left or self._interrupted or self._in_progress)

    def next_job(self, replica: int) -> Job | None:
        """Issue an interrupted training if there is one, else the next model."""
        if not self._left and not self._interrupted:
            return None
        self._last_trial += 1
        self._in_progress.add(self._last_trial)
        if self._interrupted:
            return self._interrupted.resume(self._last_trial)
        workload, instance = self._left.popleft()
        seed = fold_seed(self._seed, workload, instance, 0)
        return Job(trial=self._last_trial, round=1, seed=seed, workload=workload, instance=instance)

    def finished(self, replica: int, job: Job, result: Finished, began: bool) -> None:
        """Take the model off the list, or hand it back if it failed by no fault of its own."""
        self._in_progress.discard(job.trial)
        if not result.completed and result.kind in RESUMABLE:
            self._interrupted.hand_back(job, began)

    def lost(self, replica: int, job: Job, began: bool) -> None:
        """Hand the model back, which the job names: it need not have begun."""
        self._in_progress.discard(job.trial)
        self._interrupted.hand_back(job, began)


def _models(config: RunConfig) -> Iterator[Model]:
    """All models, one of each workload after another, so that each workload begins early."""
    for instance in range(config.science.instances):
        for workload in config.science.workloads:
            yield workload, instance


def _model_of(trial: TrialLedger) -> tuple[str | None, int]:
    assert trial.issued is not None
    return trial.issued.workload, trial.issued.instance or 0
