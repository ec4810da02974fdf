"""The scheduler's job that a replica may have to itself."""

import logging
import os

from aiperf.answers import ask_and_wait
from aiperf.config.placement import JOB_OF_ITS_OWN

log = logging.getLogger(__name__)

CANCEL_TIMEOUT_S = 20.0


def give_job_back() -> None:
    """Cancel the SLURM job of this replica, whose primary is gone; no-op without a job of its own.

    SLURM would keep it, and its nodes, until its time limit if the salloc that owned it was killed
    too.
    """
    job = os.environ.get("SLURM_JOB_ID")
    if JOB_OF_ITS_OWN not in os.environ or job is None:
        return
    log.info("the primary is gone: SLURM job %s is given back", job)
    answer = ask_and_wait(["scancel", job], CANCEL_TIMEOUT_S)
    if not answer.fine:
        log.warning("scancel %s failed: %s", job, answer.reason)
