"""A run as event files for TensorBoard: scalars of the run and of each trial, and HParams."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tensorboardX import FileWriter
from tensorboardX.summary import hparams, scalar

from aiperf.errors import EnvironmentNotReadyError
from analysis.output.trackers.points import (
    Point,
    run_points,
    trial_end_ms,
    trial_parameters,
    trial_points,
    trial_results,
    trial_start_ms,
)
from analysis.reading.run_data import RunData
from analysis.report.model import Report, TrialPart

SUFFIX = ".aiperf"
"""Ends the names of our event files, so that a later export finds those to replace."""

FINISHED = frozenset({"completed", "early_stop"})
"""States of trials whose session TensorBoard shows as a success."""


def write_events(data: RunData, report: Report, place: str) -> str:
    """Write the event files of a run into a folder of its own below `place`.

    Scalars are written with the times of the records. HParams are described by their sessions
    alone: TensorBoard takes the first description of an experiment for that of all runs in a
    folder. Raises EnvironmentNotReadyError if the folder cannot be written.
    """
    folder = Path(place) / data.paths.root.resolve().name
    try:
        for old in folder.rglob(f"events.out.tfevents.*{SUFFIX}"):
            old.unlink()
        with _writer(folder) as writer:
            for point in run_points(data, report):
                _add(writer, point)
        for trial in report.trials:
            with _writer(folder / f"trial-{trial.id:06d}") as writer:
                _add_trial(writer, data, trial)
    except OSError as error:
        raise EnvironmentNotReadyError([f"{folder} cannot be written: {error}; choose another folder"]) from error
    return f"{folder}: 1 run, {len(report.trials)} trials; show it with: tensorboard --logdir {place}"


@contextmanager
def _writer(folder: Path) -> Iterator[FileWriter]:
    writer = FileWriter(str(folder), filename_suffix=SUFFIX)
    try:
        yield writer
    finally:
        writer.close()


def _add(writer: FileWriter, point: Point) -> None:
    writer.add_summary(scalar(point.name, point.value), point.step, point.time_ms / 1000)


def _add_trial(writer: FileWriter, data: RunData, trial: TrialPart) -> None:
    ended_s = trial_end_ms(data, trial) / 1000
    results = trial_results(trial)
    _, started, finished = hparams(trial_parameters(trial), results)
    writer.add_summary(started, walltime=trial_start_ms(data, trial) / 1000)
    for point in trial_points(data, trial.id):
        _add(writer, point)
    for name, value in results.items():
        writer.add_summary(scalar(name, value), trial.epochs, ended_s)
    if trial.state in FINISHED:
        writer.add_summary(finished, walltime=ended_s)
