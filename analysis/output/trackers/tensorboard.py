"""A run as event files for TensorBoard: scalars of the run and of each training, and HParams."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tensorboardX import FileWriter
from tensorboardX.summary import hparams, scalar

from aiperf.errors import EnvironmentNotReadyError
from analysis.output.trackers.points import Point, Tracked, identity_of, run_points, trainings
from analysis.reading.run_data import RunData
from analysis.report.model import Report

SUFFIX = ".aiperf"
"""Ends the names of our event files, behind the run's identity: a later export replaces its own."""

IDENTITY_LETTERS = 8

FINISHED = frozenset({"completed", "early_stop"})
"""States of trainings whose session TensorBoard shows as a success."""


def write_events(data: RunData, report: Report, place: str) -> str:
    """Write the event files of a run into a folder of its own below `place`.

    Scalars are written with the times of the records. HParams are described by their sessions
    alone: TensorBoard takes the first description of an experiment for that of all runs in a
    folder. Raises EnvironmentNotReadyError if the folder cannot be written.
    """
    identity = identity_of(data, report)[:IDENTITY_LETTERS]
    folder = _own_folder(Path(place), data.paths.root.resolve().name, identity)
    suffix = f".{identity}{SUFFIX}"
    try:
        for old in folder.rglob(f"events.out.tfevents.*{suffix}"):
            old.unlink()
        with _writer(folder, suffix) as writer:
            for point in run_points(data, report):
                _add(writer, point)
        tracked = list(trainings(data, report))
        for training in tracked:
            with _writer(folder / _folder(training.name), suffix) as writer:
                _add_training(writer, training)
    except OSError as error:
        raise EnvironmentNotReadyError([f"{folder} cannot be written: {error}; choose another folder"]) from error
    return f"{folder}: 1 run, {len(tracked)} trainings; show it with: tensorboard --logdir {place}"


def _folder(name: str) -> str:
    """Names of trials sort by number: trial-000012, hepcnn-0."""
    kind, _, number = name.rpartition(" ")
    return f"{kind}-{int(number):06d}" if kind == "trial" else f"{kind}-{number}"


def _own_folder(place: Path, name: str, identity: str) -> Path:
    """The folder of the run: by its name, and by its identity if another run has the name."""
    folder, named = place / name, place / f"{name}-{identity}"
    events = [*folder.glob(f"events.out.tfevents.*{SUFFIX}")]
    others = any(not event.name.endswith(f".{identity}{SUFFIX}") for event in events)
    return named if others or named.is_dir() else folder


@contextmanager
def _writer(folder: Path, suffix: str) -> Iterator[FileWriter]:
    writer = FileWriter(str(folder), filename_suffix=suffix)
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
