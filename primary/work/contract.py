"""The contract of a work list: it decides what each replica does next, and issues the trial ids."""

from typing import Protocol

from aiperf.wire.messages import Finished, Job


class WorkList(Protocol):
    """Jobs by replica. No other part of the program issues trial ids.

    Ids grow and are never reused. An interrupted training is given out again, to the next free
    replica, as a new job that names the old one (`Job.resumes`); after a fixed number of
    resumptions it is given up.
    """

    def next_job(self, replica: int) -> Job | None:
        """Issue a job with a new id to a free replica; None if there is nothing to do now."""

    @property
    def complete(self) -> bool:
        """True if all work is done, and none can come back; work without an end never is."""

    def finished(self, replica: int, job: Job, result: Finished, began: bool) -> None:
        """Note how a job ended. `began`: the replica had chosen what to train, and begun."""

    def lost(self, replica: int, job: Job, began: bool) -> None:
        """Note that a replica was lost while it worked on a job."""
