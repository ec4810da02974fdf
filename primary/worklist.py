"""Which job each replica gets next: its own schedule, and trainings that were broken off elsewhere."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from aiperf.config.settings import RunConfig
from aiperf.history.ledger import Ledger
from aiperf.messages import Finished, Job
from aiperf.rules.schedule import Assignment, next_assignment

MAX_RESUMPTIONS = 2
"""A training that was broken off so often is given up."""

RESUMABLE = frozenset({"crash", "hang", "rank_lost", "start", "ranks"})
"""Failures that are not the training's own doing; others (nan, out_of_memory, build, ...) would come again."""


@dataclass
class WorkList:
    """Jobs by replica. The only one to issue trial ids."""

    config: RunConfig
    last_trial: int = 0
    steps: dict[int, Assignment] = field(default_factory=dict)
    """What each replica does next of its own schedule."""
    broken_off: deque[Job] = field(default_factory=deque)
    """To be gone on with, by whoever is free first."""
    _resumptions: dict[int, int] = field(default_factory=dict)

    def next_job(self, replica: int) -> Job:
        """A new job with an id of its own."""
        self.last_trial += 1
        if self.broken_off:
            old = self.broken_off.popleft()
            self._resumptions[self.last_trial] = self._resumptions.get(old.trial, 0) + 1
            return old.model_copy(update={"trial": self.last_trial, "resumes": old.trial})
        step = self.steps.setdefault(replica, Assignment())
        seed = step.seed(self.config, replica)
        return Job(trial=self.last_trial, round=step.round, seed=seed, point=step.point, base=step.base)

    def finished(self, replica: int, job: Job, result: Finished) -> None:
        """A job is over."""
        again = not result.completed and result.kind in RESUMABLE and self._give_back(job)
        self._advance(replica, job, result.completed or again)

    def lost(self, replica: int, job: Job) -> None:
        """The replica went with its job."""
        self._advance(replica, job, self._give_back(job))

    def _give_back(self, job: Job) -> bool:
        if self._resumptions.get(job.trial, 0) >= MAX_RESUMPTIONS:
            return False
        self.broken_off.append(job)
        return True

    def _advance(self, replica: int, job: Job, completed: bool) -> None:
        if job.resumes is None:
            step = self.steps.setdefault(replica, Assignment())
            self.steps[replica] = next_assignment(step, job.trial, completed, self.config.search)


def from_ledger(config: RunConfig, ledger: Ledger) -> WorkList:
    """Where a run stands: every replica after its last job, everything broken off to be gone on with."""
    steps: dict[int, Assignment] = {}
    for number, trial in sorted(ledger.trials.items()):
        if trial.issued is not None and trial.issued.resumes is None:
            issued = trial.issued
            step = Assignment(issued.round, issued.point, issued.base)
            steps[issued.replica] = next_assignment(step, number, trial.failed is None, config.search)
    return WorkList(config, max(ledger.trials, default=0), steps, deque(_jobs(ledger)))


def _jobs(ledger: Ledger) -> Iterable[Job]:
    for trial in ledger.broken_off():
        if trial.issued is not None:
            issued = trial.issued
            yield Job(trial=issued.trial, round=issued.round, seed=issued.seed, point=issued.point, base=issued.base)
