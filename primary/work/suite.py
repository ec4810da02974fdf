"""A scientific suite: every model of every workload once; free replicas take the next one."""

from collections import deque
from collections.abc import Iterator

from aiperf.config.settings import RunConfig
from aiperf.records.entries import TrialLedger
from aiperf.records.ledger import Ledger
from aiperf.seeds import fold_seed
from aiperf.wire.messages import Finished, Job
from primary.work.interrupted import RESUMABLE, Interrupted

Model = tuple[str, int]
"""A workload and the number of an instance."""


class Suite:
    """The models that are left to train, continued from what a ledger records of them."""

    def __init__(self, config: RunConfig, ledger: Ledger) -> None:
        self._seed = config.run.seed
        self._last_trial = max((ledger.fences.last_trial, *ledger.trials))
        attempts = _attempts(ledger)
        self._left = deque(model for model in _models(config) if model not in attempts)
        self._interrupted = Interrupted()
        self._in_progress: set[int] = set()
        for trials in attempts.values():
            if trials[-1].issued is not None and _may_go_on(trials[-1]):
                self._interrupted.add(trials[-1].issued, len(trials) - 1)

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
            self._interrupted.hand_back(job)

    def lost(self, replica: int, job: Job, began: bool) -> None:
        """Hand the model back, which the job names: it need not have begun."""
        self._in_progress.discard(job.trial)
        self._interrupted.hand_back(job)


def _models(config: RunConfig) -> Iterator[Model]:
    """All models, one of each workload after another, so that each workload begins early."""
    for instance in range(config.science.instances):
        for workload in config.science.workloads:
            yield workload, instance


def _attempts(ledger: Ledger) -> dict[Model, list[TrialLedger]]:
    """The trials of every model that was issued, in the order of their ids."""
    found: dict[Model, list[TrialLedger]] = {}
    for _, trial in sorted(ledger.trials.items()):
        issued = trial.issued
        if issued is not None and issued.workload is not None:
            found.setdefault((issued.workload, issued.instance or 0), []).append(trial)
    return found


def _may_go_on(trial: TrialLedger) -> bool:
    """True if the last trial of a model did not end it."""
    if trial.failed is not None:
        return trial.failed.body.kind in RESUMABLE
    return trial.ended is None or trial.ended.body.reason == "stopped"
