"""Trials by the kind of their job."""

from __future__ import annotations

from aiperf.messages import Job
from replica.trial.automl.lifecycle import Trial
from replica.trial.automl.standby import Standby
from replica.trial.context import ReplicaContext
from replica.trial.science import WorkloadTrial

AnyTrial = Trial | WorkloadTrial


def trial_of(context: ReplicaContext, job: Job, standby: Standby) -> AnyTrial:
    """The trial of a job: of AutoML, or of a scientific workload."""
    return Trial(context, job, standby) if job.workload is None else WorkloadTrial(context, job)
