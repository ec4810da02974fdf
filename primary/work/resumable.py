"""Interrupted trainings that are given out again, whatever they train."""

from __future__ import annotations

from aiperf.history.bodies import JobIssued
from aiperf.messages import Job

MAX_RESUMPTIONS = 2
"""A training that is interrupted once more after this many resumptions is given up."""

RESUMABLE = frozenset({"crash", "hang", "rank_lost", "start", "ranks"})
"""Failures that the training did not cause; others (nan, out_of_memory, ...) would recur."""


def job_of(issued: JobIssued) -> Job:
    """The job that a record tells of, as it was issued; what depends on the primary is left out."""
    return Job(
        trial=issued.trial, round=issued.round, seed=issued.seed, point=issued.point, base=issued.base,
        workload=issued.workload, instance=issued.instance,
    )  # fmt: skip
