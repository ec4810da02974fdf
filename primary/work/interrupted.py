"""Interrupted trainings that are given out again, whatever they train."""

from collections import deque
from collections.abc import Sequence

from msgspec.structs import replace

from aiperf.records.bodies import JobIssued
from aiperf.records.entries import TrialLedger
from aiperf.records.ledger import Ledger
from aiperf.rules.schedule import MAX_RESUMPTIONS
from aiperf.wire.messages import CROWDED, Job

RESUMABLE = frozenset({"crash", "hang", "rank_lost", "start", "ranks", "storage", CROWDED})
"""Failures that the training did not cause; others (nan, out_of_memory, ...) would recur."""


class Interrupted:
    """Trainings that wait to be resumed by the next free replica."""

    def __init__(self) -> None:
        self._jobs: deque[Job] = deque()
        """Each names the trial to be resumed."""
        self._resumptions: dict[int, int] = {}
        """Earlier attempts of a resumed training, by trial."""

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def add(self, training: Sequence[TrialLedger]) -> None:
        """Take over what the records say of a training, unless it was resumed too often before."""
        begun = [trial.trial for trial in training if trial.begun is not None]
        last = training[-1]
        assert last.issued is not None
        self._resumptions[last.trial] = len(training) - 1
        crowded = any(trial.failed is not None and trial.failed.body.kind == CROWDED for trial in training)
        self._keep(_job_of(last.issued, alone=crowded), begun[-1] if begun else last.trial)

    def hand_back(self, job: Job, began: bool, failure: str | None = None) -> bool:
        """Keep a job for later, after a failure of this kind; False if it was resumed too often."""
        # What began nothing has neither epochs nor a checkpoint: the trial that it was to resume
        # has.
        alone = job.alone or failure == CROWDED
        return self._keep(replace(job, alone=alone), job.trial if began or job.resumes is None else job.resumes)

    def _keep(self, job: Job, resumes: int) -> bool:
        if self._resumptions.get(job.trial, 0) >= MAX_RESUMPTIONS:
            return False
        self._jobs.append(replace(job, resumes=resumes))
        return True

    def resume(self, trial: int) -> Job:
        """The job that has waited longest, as a new trial."""
        old = self._jobs.popleft()
        self._resumptions[trial] = self._resumptions.get(old.trial, 0) + 1
        return replace(old, trial=trial)


def trainings(ledger: Ledger) -> list[list[TrialLedger]]:
    """The trials that were issued for every training: its first one, and those that resume it."""
    found: dict[int, list[TrialLedger]] = {}
    for number, trial in sorted(ledger.trials.items()):
        if trial.issued is not None:
            # A trial that names a later one is not in `found` yet: nothing leads in a circle.
            found[number] = found.get(trial.issued.resumes or 0, [])
            found[number].append(trial)
    return [trials for number, trials in found.items() if trials[0].trial == number]


def may_go_on(trial: TrialLedger) -> bool:
    """True if the last trial of a training did not end it."""
    if trial.failed is not None:
        return trial.failed.body.kind in RESUMABLE
    return trial.ended is None or trial.ended.body.reason == "stopped"


def _job_of(issued: JobIssued, alone: bool) -> Job:
    """Rebuild a job from its record, as it was issued, without the parts that a primary adds."""
    return Job(
        trial=issued.trial,
        round=issued.round,
        seed=issued.seed,
        point=issued.point,
        base=issued.base,
        workload=issued.workload,
        instance=issued.instance,
        alone=alone,
    )
