"""A run as trackers want it: numbers over time, and the parameters of the run and its trials."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from analysis.reading.run_data import RunData
from analysis.report.model import Report, TrialPart

Parameter = str | int | float


@dataclass(frozen=True, slots=True)
class Point:
    """A number at a step. Time is UTC in milliseconds on the primary's clock.

    Steps of a run are seconds after its start, those of a trial epochs.
    """

    name: str
    value: float
    step: int
    time_ms: int


def run_points(data: RunData, report: Report) -> Iterator[Point]:
    """The timeline of a run: the error, and the scores unless the run is invalid."""
    start_ms = data.start_ms if data.start_ms is not None else data.end_ms
    for moment in report.timeline:
        values = {"error": moment.error}
        if report.score_ops is not None:
            values |= {"score_ops": moment.ops, "regulated_score_ops": moment.regulated_ops}
        for name, value in values.items():
            yield Point(name, value, round(moment.t_s), start_ms + round(1000 * moment.t_s))


def trial_points(data: RunData, trial: int) -> Iterator[Point]:
    """The epochs of a trial that count."""
    for epoch in data.work[trial].epochs:
        body = epoch.body
        values = {
            "accuracy": body.accuracy,
            "quality": body.measured_quality,
            "loss": body.loss,
            "validation_loss": body.validation_loss,
            "learning_rate": body.learning_rate,
        }
        for name, value in values.items():
            if value is not None:
                yield Point(name, value, body.epoch, epoch.time_ms)


def trial_results(trial: TrialPart) -> dict[str, float]:
    """The numbers that a trial ended with."""
    best = {} if trial.best_accuracy is None else {"best_accuracy": trial.best_accuracy}
    return {**best, "operations": float(trial.operations), "images_trained": float(trial.images_trained)}


def trial_parameters(trial: TrialPart) -> dict[str, Parameter]:
    """What a trial was trained with: its hyperparameters, its architecture and its place."""
    facts = {
        "architecture": trial.architecture,
        "depth": trial.depth,
        "parameters": trial.parameters,
        "image_operations": trial.image_operations,
        "precision": trial.precision,
        "round": trial.round,
        "point": trial.point,
        "replica": trial.replica,
        "state": trial.state,
    }
    return {**trial.hyperparameters, **{name: value for name, value in facts.items() if value is not None}}


def run_parameters(report: Report) -> dict[str, str]:
    """Every setting in force, as section.name, and the versions of the software."""
    settings = {
        f"{section}.{name}": value if isinstance(value, str) else json.dumps(value)
        for section, own in report.configuration.items()
        for name, value in own.items()
    }
    versions = {f"version.{name}": value for name, value in report.versions.items() if value is not None}
    return {**settings, **versions}


def trial_end_ms(data: RunData, trial: TrialPart) -> int:
    """When a trial ended; the end of the run if it never started."""
    if trial.ended_s is None or data.start_ms is None:
        return data.end_ms
    return data.start_ms + round(1000 * trial.ended_s)


def trial_start_ms(data: RunData, trial: TrialPart) -> int:
    """When the training of a trial started; the end of the run if it never did."""
    if trial.started_s is None or data.start_ms is None:
        return data.end_ms
    return data.start_ms + round(1000 * trial.started_s)
