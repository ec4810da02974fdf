"""A run as trackers want it: numbers over time, and the parameters of the run and its trainings."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from analysis.reading.run_data import RunData
from analysis.report.model import Report, TrialPart
from analysis.report.workloads import InstancePart, WorkloadPart

Parameter = str | int | float


@dataclass(frozen=True, slots=True)
class Point:
    """A number at a step. Time is UTC in milliseconds on the primary's clock.

    Steps of a run are seconds after its start, those of a training epochs.
    """

    name: str
    value: float
    step: int
    time_ms: int


@dataclass(frozen=True, slots=True)
class Tracked:
    """A training of its own: a trial of a search, or a model of a scientific workload."""

    name: str
    parameters: Mapping[str, Parameter]
    results: Mapping[str, float]
    """The numbers that it ended with, at its last epoch."""
    points: tuple[Point, ...]
    """Epochs that count."""
    epochs: int
    start_ms: int
    """The end of the run if it never started."""
    end_ms: int
    """The end of the run if it has none."""
    state: str
    """State as in the report."""


def identity_of(data: RunData, report: Report) -> str:
    """The identity of a run, the same for its copies: its run.json and its start, hashed.

    Folders and names of runs are chosen by people, who use them again.
    """
    return hashlib.sha256(data.paths.run.read_bytes() + str(report.started).encode()).hexdigest()


def trainings(data: RunData, report: Report) -> Iterator[Tracked]:
    """The trials of a search, by number, or the models of each workload."""
    yield from (_trial(data, trial) for trial in report.trials)
    yield from (_model(data, workload, model) for workload in report.workloads for model in workload.models)


def run_points(data: RunData, report: Report) -> Iterator[Point]:
    """The timeline of a run: the error, and the scores unless the run is invalid."""
    start_ms = data.start_ms if data.start_ms is not None else data.end_ms
    for moment in report.timeline:
        values = {"error": moment.error}
        if report.score_ops is not None:
            values |= {"score_ops": moment.ops, "regulated_score_ops": moment.regulated_ops}
        for name, value in values.items():
            yield Point(name, value, round(moment.t_s), start_ms + round(1000 * moment.t_s))


def run_parameters(report: Report) -> dict[str, str]:
    """Every setting in force, as section.name, and the versions of the software."""
    settings = {
        f"{section}.{name}": value if isinstance(value, str) else json.dumps(value)
        for section, own in report.configuration.items()
        for name, value in own.items()
    }
    versions = {f"version.{name}": value for name, value in report.versions.items() if value is not None}
    return {**settings, **versions}


def _trial(data: RunData, trial: TrialPart) -> Tracked:
    best = {} if trial.best_accuracy is None else {"best_accuracy": trial.best_accuracy}
    return Tracked(
        name=f"trial {trial.id}",
        parameters=_trial_parameters(trial),
        results={**best, "operations": float(trial.operations), "images_trained": float(trial.images_trained)},
        points=tuple(_trial_points(data, trial.id)),
        epochs=trial.epochs,
        start_ms=_moment(data, trial.started_s),
        end_ms=_moment(data, trial.ended_s),
        state=trial.state,
    )


def _trial_points(data: RunData, trial: int) -> Iterator[Point]:
    for epoch in data.work.epochs_of(trial):
        body = epoch.body
        values = {
            "accuracy": body.accuracy,
            "training_accuracy": body.training_accuracy,
            "quality": body.measured_quality,
            "loss": body.loss,
            "validation_loss": body.validation_loss,
            "learning_rate": body.learning_rate,
        }
        for name, value in values.items():
            if value is not None:
                yield Point(name, value, body.epoch, epoch.time_ms)


def _trial_parameters(trial: TrialPart) -> dict[str, Parameter]:
    """Collect a trial's hyperparameters, its architecture and its place."""
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


def _model(data: RunData, workload: WorkloadPart, model: InstancePart) -> Tracked:
    start_ms = _moment(data, model.started_s)
    last = model.trials[-1] if model.trials else None
    results = {
        "quality": model.quality,
        "training_quality": model.training_quality,
        "test_quality": model.test_quality,
        "time_to_quality_s": model.time_to_quality_s,
        "energy_to_quality_j": model.energy_to_quality_j,
        "cost_to_quality": model.cost_to_quality,
        "operations": float(model.operations),
        "images_trained": float(model.images_trained),
    }
    return Tracked(
        name=f"{workload.workload} {model.instance}",
        parameters=_model_parameters(workload, model),
        results={name: value for name, value in results.items() if value is not None},
        points=tuple(
            Point(name, value, part.epoch, start_ms + round(1000 * part.t_s))
            for part in model.curve
            for name, value in part.measures.items()
        ),
        epochs=max((part.epoch for part in model.curve), default=0),
        start_ms=start_ms,
        end_ms=_moment(data, last.ended_s if last is not None else None),
        state=last.state if last is not None else "running",
    )


def _model_parameters(workload: WorkloadPart, model: InstancePart) -> dict[str, Parameter]:
    """Collect the settings of a model's training, and its target."""
    facts = {
        "workload": workload.workload,
        "framework": workload.framework,
        "size": workload.size,
        "dataset": workload.dataset,
        "precision": workload.precision,
        "seed": model.seed,
        "reached": str(model.reached),
        **{f"target.{name}": value for name, value in workload.targets.items()},
    }
    return {**workload.hyperparameters, **{name: value for name, value in facts.items() if value is not None}}


def _moment(data: RunData, seconds: float | None) -> int:
    """UTC of a time after the run's start; the end of the run if there is none."""
    if seconds is None or data.start_ms is None:
        return data.end_ms
    return data.start_ms + round(1000 * seconds)
