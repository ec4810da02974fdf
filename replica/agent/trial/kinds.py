"""Trials by the kind of their job."""

from __future__ import annotations

from pathlib import Path

from aiperf.config.settings import RunConfig
from aiperf.errors import DatasetError
from aiperf.wire.messages import Job
from replica.agent.trial.automl.lifecycle import Trial
from replica.agent.trial.automl.standby import Standby
from replica.agent.trial.context import ReplicaContext
from replica.agent.trial.science import WorkloadTrial
from workloads.data import find_set
from workloads.science import SCIENCE

AnyTrial = Trial | WorkloadTrial


def why_without_data(config: RunConfig) -> str | None:
    """Why this node has not the data sets of the scientific suite; None for other runs, too."""
    if config.run.suite != "science" or config.science.data_dir is None:
        return None
    for name in config.science.workloads:
        need = SCIENCE.load(name).size(config.science.size).data
        try:
            find_set(need.source, Path(config.science.data_dir) / need.folder)
        except DatasetError as error:
            return str(error)
    return None


def trial_of(context: ReplicaContext, job: Job, standby: Standby) -> AnyTrial:
    """The trial of a job: of AutoML, or of a scientific workload."""
    return Trial(context, job, standby) if job.workload is None else WorkloadTrial(context, job)
