"""Jobs of work lists that have some."""

from aiperf.wire.messages import Job
from primary.work import WorkList


def take(work: WorkList, replica: int) -> Job:
    """The next job of a replica, which there is."""
    job = work.next_job(replica)
    assert job is not None
    return job
