"""A run in MLflow: a run with its timeline, and a nested run for each training."""

import importlib
import importlib.util
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from aiperf.cli.packages import to_install
from aiperf.errors import EnvironmentNotReadyError
from analysis.output.trackers.points import Point, Tracked, identity_of, run_parameters, run_points, trainings
from analysis.reading.run_data import RunData
from analysis.report.model import Report

T = TypeVar("T")

DEFAULTS = {
    "MLFLOW_ALLOW_FILE_STORE": "true",  # else MLflow refuses the folder that the user named
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # two lines for each trial
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",  # MLflow's 7 take minutes if there is no server
}
"""MLflow's own variables, unless the user has set them."""

EXPERIMENT = "aiperf"
"""Name of the experiment, unless MLFLOW_EXPERIMENT_NAME gives another."""

DATABASES = r"(sqlite|postgresql|mysql|mssql)\b"

RUN_TAG = "aiperf.run"
"""The tag by which a later export finds the runs to replace."""

MOST_METRICS, MOST_PARAMETERS = 1000, 100
"""Limits of MLflow for one call."""

ENDS = {"deadline": "FINISHED", "completed": "FINISHED", "interrupted": "KILLED", "no_replicas": "FAILED"}
STATES = {"completed": "FINISHED", "early_stop": "FINISHED", "stopped": "KILLED", "failed": "FAILED", "lost": "FAILED"}
"""MLflow's status of each end of a run, and of each state of a training; others still run."""


def log_run(data: RunData, report: Report, place: str) -> str:
    """Log a run and its trainings to the server, database or folder at `place`.

    MLflow can restore a run that a later export replaced. Raises EnvironmentNotReadyError if
    MLflow or what it needs for the place is missing, or if the place refuses.
    """
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    if re.match(DATABASES, place) and importlib.util.find_spec("sqlalchemy") is None:
        raise EnvironmentNotReadyError(
            [
                f"{place}: for databases MLflow needs more than the extra [mlflow]: name a server or a folder, or "
                "pip install mlflow"
            ]
        )
    try:
        mlflow = importlib.import_module("mlflow")
    except ModuleNotFoundError as error:
        raise EnvironmentNotReadyError([f"MLflow is not installed ({error}): {to_install('mlflow')}"]) from error
    try:
        return _Log(mlflow.MlflowClient(place), place).write(data, report)
    except (mlflow.exceptions.MlflowException, OSError) as error:
        raise EnvironmentNotReadyError([f"{place}: MLflow cannot log the run there: {error}"]) from error


class _Log:
    """One export to MLflow."""

    def __init__(self, client: Any, place: str) -> None:
        self._client = client
        self._place = place
        self._entities = importlib.import_module("mlflow.entities")

    def write(self, data: RunData, report: Report) -> str:
        """Log everything, then delete what an earlier export of the run has logged."""
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
        found = self._client.get_experiment_by_name(name)
        if found is not None and found.lifecycle_stage == "deleted":
            restore = f"mlflow experiments restore --experiment-id {found.experiment_id}"
            raise EnvironmentNotReadyError(
                [
                    f"{self._place}: experiment {name!r} is deleted; restore it with: "
                    f"MLFLOW_TRACKING_URI={shlex.quote(self._place)} {restore}; "
                    "or name another one in MLFLOW_EXPERIMENT_NAME"
                ]
            )
        experiment = found.experiment_id if found is not None else self._client.create_experiment(name)
        mark = {RUN_TAG: identity_of(data, report)}
        earlier = [*self._marked(experiment, mark[RUN_TAG])]
        parent = self._run(experiment, report.name, data.start_ms or data.end_ms, mark)
        self._parameters(parent, run_parameters(report))
        self._metrics(parent, run_points(data, report))
        tracked = list(trainings(data, report))
        for training in tracked:
            self._training(experiment, {**mark, "mlflow.parentRunId": parent}, training)
        self._end(parent, ENDS.get(report.ended), data.end_ms)
        for run in earlier:
            self._client.delete_run(run)
        return f"{self._place}: run {parent} of experiment {name!r}, {len(tracked)} nested runs"

    def _marked(self, experiment: str, mark: str) -> Iterator[str]:
        token = None
        while True:
            page = self._client.search_runs([experiment], f"tags.`{RUN_TAG}` = '{mark}'", page_token=token)
            yield from (run.info.run_id for run in page)
            token = page.token
            if not token:
                return

    def _run(self, experiment: str, name: str, start_ms: int, tags: Mapping[str, str]) -> str:
        run = self._client.create_run(experiment, start_time=start_ms, tags=dict(tags), run_name=name)
        identity: str = run.info.run_id
        return identity

    def _training(self, experiment: str, tags: Mapping[str, str], training: Tracked) -> None:
        run = self._run(experiment, training.name, training.start_ms, tags)
        self._parameters(run, training.parameters)
        results = [Point(name, value, training.epochs, training.end_ms) for name, value in training.results.items()]
        self._metrics(run, [*training.points, *results])
        self._end(run, STATES.get(training.state), training.end_ms)

    def _parameters(self, run: str, values: Mapping[str, object]) -> None:
        parameters = [self._entities.Param(name, str(value)) for name, value in values.items()]
        for some in _portions(parameters, MOST_PARAMETERS):
            self._client.log_batch(run, params=some)

    def _metrics(self, run: str, points: Iterable[Point]) -> None:
        metrics = [self._entities.Metric(point.name, point.value, point.time_ms, point.step) for point in points]
        for some in _portions(metrics, MOST_METRICS):
            self._client.log_batch(run, metrics=some)

    def _end(self, run: str, status: str | None, end_ms: int) -> None:
        if status is not None:
            self._client.set_terminated(run, status, end_ms)


def _portions(items: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), most):
        yield items[start : start + most]
