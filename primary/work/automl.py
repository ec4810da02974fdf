"""AutoML rounds: a schedule for each replica; free replicas resume interrupted trainings."""

from aiperf.config.settings import RunConfig
from aiperf.records.ledger import Ledger
from aiperf.rules.schedule import Assignment, next_assignment
from aiperf.wire.messages import Finished, Job
from primary.work.interrupted import RESUMABLE, Interrupted, may_go_on, trainings


class AutomlRounds:
    """The rounds of all replicas, continued from what a ledger records of them."""

    complete = False

    def __init__(self, config: RunConfig, ledger: Ledger) -> None:
        self._config = config
        self._last_trial = max((ledger.fences.last_trial, *ledger.trials))
        self._assignments = _next_assignments(config, ledger)
        """The next assignment of each replica's own schedule."""
        self._interrupted = Interrupted()
        for training in trainings(ledger):
            if any(trial.begun is not None for trial in training) and may_go_on(training[-1]):
                self._interrupted.add(training)

    def next_job(self, replica: int) -> Job:
        """Issue an interrupted training if there is one, else the replica's next assignment."""
        self._last_trial += 1
        if self._interrupted:
            return self._interrupted.resume(self._last_trial)
        assignment = self._assignments.setdefault(replica, Assignment())
        seed = assignment.seed(self._config, replica)
        return Job(
            trial=self._last_trial, round=assignment.round, seed=seed, point=assignment.point, base=assignment.base
        )

    def finished(self, replica: int, job: Job, result: Finished, began: bool) -> None:
        """Move the replica on; hand the training back if it failed by no fault of its own."""
        again = not result.completed and result.kind in RESUMABLE and self._hand_back(job, began, result.kind)
        self._advance(replica, job, result.completed or again)

    def lost(self, replica: int, job: Job, began: bool) -> None:
        """Hand the training back; the replica's schedule continues without it."""
        self._advance(replica, job, self._hand_back(job, began))

    def _hand_back(self, job: Job, began: bool, failure: str | None = None) -> bool:
        # A job that has begun nothing is nothing to resume, nor can its architecture be tuned: the
        # replica does it anew.
        return (began or job.resumes is not None) and self._interrupted.hand_back(job, began, failure)

    def _advance(self, replica: int, job: Job, completed: bool) -> None:
        # A resumed training belongs to the schedule of the replica that began it.
        if job.resumes is None:
            assignment = self._assignments.setdefault(replica, Assignment())
            self._assignments[replica] = next_assignment(assignment, job.trial, completed, self._config.search)


def _next_assignments(config: RunConfig, ledger: Ledger) -> dict[int, Assignment]:
    """The assignment after the last recorded job of every replica."""
    assignments: dict[int, Assignment] = {}
    for first in (training[0] for training in trainings(ledger)):
        if (issued := first.issued) is not None and issued.resumes is None:
            # As in `AutomlRounds`: what was handed back is completed for the schedule, and what
            # was not begun is nobody's to resume.
            done = first.begun is not None and (first.failed is None or may_go_on(first))
            assignment = Assignment(issued.round, issued.point, issued.base)
            assignments[issued.replica] = next_assignment(assignment, first.trial, done, config.search)
    return assignments
