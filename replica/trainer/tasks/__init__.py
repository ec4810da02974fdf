"""Tasks by the kind of learning: they compute a training step. Register a new one here."""

from collections.abc import Callable
from typing import Any

from aiperf.registry import Registry
from replica.trainer.tasks.contract import Task

TASKS: Registry[Callable[[Any], Task]] = Registry(
    "task",
    {
        "classification": "replica.trainer.tasks.classification:SignalClassification",
        "regression": "replica.trainer.tasks.regression:Regression",
        "detection": "replica.trainer.tasks.detection.task:Detection",
        "generation": "replica.trainer.tasks.generation:Generation",
        "semi_supervised": "replica.trainer.tasks.semi_supervised:SemiSupervised",
    },
)
"""Makers of tasks from their settings, of `workloads.settings`; Keras' backend is chosen before."""

__all__ = ["TASKS", "Task"]
