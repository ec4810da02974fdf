"""What a training step computes, by the kind of learning. Register a new task here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aiperf.registry import Registry
from replica.trainer.tasks.contract import Task

OpenTask = Callable[[Mapping[str, Any], int], Task]
"""Makes a task from built Keras models by name, and a seed for what it draws."""

TASKS: Registry[OpenTask] = Registry(
    "task",
    {
        "classification": "replica.trainer.tasks.classification:SignalClassification",
        "regression": "replica.trainer.tasks.regression:Regression",
    },
)

__all__ = ["TASKS", "OpenTask", "Task"]
