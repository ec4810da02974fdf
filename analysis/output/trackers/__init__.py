"""Trackers of experiments: other people's tools that show a run and its trials."""

from collections.abc import Callable

from aiperf.registry import Registry
from analysis.reading.run_data import RunData
from analysis.report.model import Report

Tracker = Callable[[RunData, Report, str], str]
"""Hands a run over to the place that the user named; returns a line that says where to look.

A second export of a run replaces the first. Raises EnvironmentNotReadyError if a package is
missing or the place refuses.
"""

TRACKERS: Registry[Tracker] = Registry(
    "tracker",
    {
        "tensorboard": "analysis.output.trackers.tensorboard:write_events",
        "mlflow": "analysis.output.trackers.mlflow:log_run",
    },
)
