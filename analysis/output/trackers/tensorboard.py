"""A run as event files for TensorBoard: scalars of the run and of each training, and HParams."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tensorboardX import FileWriter
from tensorboardX.summary import hparams, scalar

from aiperf.errors import EnvironmentNotReadyError
from analysis.output.trackers.points import Point, Tracked, run_points, trainings
from analysis.reading.run_data import RunData
from analysis.report.model import Report

SUFFIX = ".aiperf"
"""Ends the names of our event files, so that a later export finds those to replace."""

FINISHED = frozenset({"completed", "early_stop"})
"""States of trainings whose session TensorBoard shows as a success."""


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
        tracked = list(trainings(data, report))
        for training in tracked:
            with _writer(folder / _folder(training.name)) as writer:
                _add_training(writer, training)
    except OSError as error:
        raise EnvironmentNotReadyError([f"{folder} cannot be written: {error}; choose another folder"]) from error
    return f"{folder}: 1 run, {len(tracked)} trainings; show it with: tensorboard --logdir {place}"


def _folder(name: str) -> str:
    """Names of trials sort by number: trial-000012, hepcnn-0."""
    kind, _, number = name.rpartition(" ")
    return f"{kind}-{int(number):06d}" if kind == "trial" else f"{kind}-{number}"


@contextmanager
def _writer(folder: Path) -> Iterator[FileWriter]:
    writer = FileWriter(str(folder), filename_suffix=SUFFIX)
    try:
        yield writer
    finally:
        writer.close()


def _add(writer: FileWriter, point: Point) -> None:
    writer.add_summary(scalar(point.name, point.value), point.step, point.time_ms / 1000)


def _add_training(writer: FileWriter, training: Tracked) -> None:
    ended_s = training.end_ms / 1000
    _, started, finished = hparams(dict(training.parameters), dict(training.results))
    writer.add_summary(started, walltime=training.start_ms / 1000)
    for point in training.points:
        _add(writer, point)
    for name, value in training.results.items():
        writer.add_summary(scalar(name, value), training.epochs, ended_s)
    if training.state in FINISHED:
        writer.add_summary(finished, walltime=ended_s)
