"""Workloads: the data, model, loss, quality measure and target of a training, by name."""

from aiperf.registry import Registry
from workloads.contract import Workload

WORKLOADS: Registry[Workload] = Registry("workload", {"classification": "workloads.classification:CLASSIFICATION"})

DEFAULT_WORKLOAD = "classification"
"""The workload of AutoML."""

__all__ = ["DEFAULT_WORKLOAD", "WORKLOADS", "Workload"]
