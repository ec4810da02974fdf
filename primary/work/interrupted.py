"""Interrupted trainings that are given out again, whatever they train."""

from collections import deque

from msgspec.structs import replace

from aiperf.records.bodies import JobIssued
from aiperf.wire.messages import CROWDED, Job

MAX_RESUMPTIONS = 2
"""A training that is interrupted once more after this many resumptions is given up."""

RESUMABLE = frozenset({"crash", "hang", "rank_lost", "start", "ranks", CROWDED})
"""Failures that the training did not cause; others (nan, out_of_memory, ...) would recur."""


class Interrupted:
    """Trainings that wait to be resumed by the next free replica."""

    def __init__(self) -> None:
        self._jobs: deque[Job] = deque()
        self._resumptions: dict[int, int] = {}
        """Earlier attempts of a resumed training, by trial."""

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def add(self, issued: JobIssued, resumptions: int = 0) -> None:
        """Take a training over from the records, unless it was resumed too often before."""
        self._resumptions[issued.trial] = resumptions
        self.hand_back(job_of(issued))

    def hand_back(self, job: Job) -> bool:
        """Keep a job for later; False if it was resumed too often."""
        if self._resumptions.get(job.trial, 0) >= MAX_RESUMPTIONS:
            return False
        self._jobs.append(job)
        return True

    def resume(self, trial: int) -> Job:
        """The job that has waited longest, as a new trial."""
        old = self._jobs.popleft()
        self._resumptions[trial] = self._resumptions.get(old.trial, 0) + 1
        return replace(old, trial=trial, resumes=old.trial)


def job_of(issued: JobIssued) -> Job:
    """Rebuild a job from its record, as it was issued, without the parts that a primary adds."""
    return Job(
        trial=issued.trial,
        round=issued.round,
        seed=issued.seed,
        point=issued.point,
        base=issued.base,
        workload=issued.workload,
        instance=issued.instance,
    )
