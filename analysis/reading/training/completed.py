"""Completed epochs as columns: the places of a replica's file at which its work turns.

A file whose epochs are all as an honest training leaves them keeps them in columns. The checks of
`analysis.reading.integrity.bounds` and of the ledger find nothing in such epochs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aiperf.records.bodies import EpochCompleted, TrialEnded, TrialFailed, TrialStarted
from aiperf.records.decoding.epochs import (
    CORRECT,
    EPOCH,
    EVALUATED,
    PLACE,
    TIME,
    TRAINED,
    TRIAL,
    EpochColumns,
)
from analysis.reading.columns import Numbers
from analysis.reading.integrity.bounds import RATE_TOLERANCE, images_of_epoch
from analysis.reading.integrity.view import RunView, WriterRecords

Events = NDArray[np.int64]
"""A row for each start, epoch and end: place of its line, trial in progress from there on (-1:
none), the epoch that follows, its time, and, of an epoch, its images.
"""


@dataclass(frozen=True, slots=True)
class Turns:
    """Starts and ends of trials in a file: the place of each line, and the trial from there on."""

    places: Numbers
    trials: Numbers
    """-1: none."""
    starts: list[TrialStarted | None]
    """The start, of an end None."""

    @classmethod
    def of(cls, read: WriterRecords) -> Turns:
        """Those of a file."""
        rows: list[tuple[int, int]] = []
        starts: list[TrialStarted | None] = []
        for number, record in zip(read.numbers, read.records, strict=True):
            body = record.body
            if isinstance(body, TrialStarted):
                rows.append((number - 1, body.trial))
                starts.append(body)
            elif isinstance(body, TrialEnded | TrialFailed):
                rows.append((number - 1, -1))
                starts.append(None)
        places, trials = np.array(rows, np.int64).reshape(-1, 2).T
        return cls(places, trials, starts)

    def before(self, places: Numbers) -> Numbers:
        """The last turn before each place; -1 if there is none."""
        return np.searchsorted(self.places, places) - 1


def events_of(read: WriterRecords) -> Events | None:
    """The turning points of a file; None if an epoch is not of the trial in progress."""
    turns, epochs = Turns.of(read), _epochs_of(read)
    before = turns.before(epochs[:, 0])
    if (before < 0).any() or (turns.trials[before] != epochs[:, 1]).any():
        return None
    turning = np.full((len(turns.places), 6), -1, np.int64)
    turning[:, 0], turning[:, 1] = turns.places, turns.trials
    turning[:, 2] = [-1 if start is None else _first_epoch(read, start, place, epochs)
                     for start, place in zip(turns.starts, turns.places.tolist(), strict=True)]  # fmt: skip
    every = np.concatenate([turning, epochs])
    return every[np.argsort(every[:, 0])]


def _epochs_of(read: WriterRecords) -> Events:
    """The epochs of a file, in columns or not, as events."""
    objects = [
        (number - 1, body.trial, body.epoch + 1, record.time_ms, body.images_trained, body.images_evaluated)
        for number, record in zip(read.numbers, read.records, strict=True)
        if isinstance(body := record.body, EpochCompleted)
    ]
    found = read.epochs.whole[:, (PLACE, TRIAL, EPOCH, TIME, TRAINED, EVALUATED)]
    found[:, 2] += 1
    return np.concatenate([np.array(objects, np.int64).reshape(-1, 6), found])


def _first_epoch(read: WriterRecords, start: TrialStarted, place: int, epochs: Events) -> int:
    """The epoch that a training begins with, whatever it is if another trial is resumed."""
    if start.resumes is None:
        return 1
    reports = read.progress[np.searchsorted(read.progress[:, 0], place) :][:1]
    later = epochs[epochs[:, 0] > place][:1]
    firsts = [(*reports[0, (0, 4)].tolist(),)] if len(reports) else []
    firsts += [(int(later[0, 0]), int(later[0, 2]) - 1)] if len(later) else []
    return int(min(firsts)[1]) if firsts else 1


def are_sound(read: WriterRecords, view: RunView) -> bool:
    """True if no check has anything to say about the epochs of a file that are in columns.

    Their order among reports of progress is for `analysis.reading.training.progress`.
    """
    epochs, most = read.epochs, images_of_epoch(view)
    if not len(epochs):
        return True
    if view.is_science or view.config.training.groups > 1 or most is None:
        return False
    turns = Turns.of(read)
    own = [start for start in turns.starts if start is not None]
    if len({start.trial for start in own}) < len(own) or _are_known(own, view):
        return False
    before = turns.before(epochs.column(PLACE))
    if (before < 0).any() or (turns.trials[before] != epochs.column(TRIAL)).any():
        return False
    images = epochs.whole[:, (TRAINED, EVALUATED)]
    return bool(
        (images == most).all()
        and (epochs.column(CORRECT) <= epochs.column(EVALUATED)).all()
        and _follow_each_other(epochs, before, turns)
        and _have_rates(epochs, before, turns, view)
    )


def _are_known(starts: list[TrialStarted], view: RunView) -> bool:
    """True if another file has epochs of one of these trials."""
    known = (view.ledger.trials.get(start.trial) for start in starts)
    return any(entry is not None and len(entry.epochs) for entry in known)


def _follow_each_other(epochs: EpochColumns, before: Numbers, turns: Turns) -> bool:
    """True if numbers grow by one and times do not fall, up to the last epoch that was planned."""
    numbers, again = epochs.column(EPOCH), before[1:] == before[:-1]
    planned = np.array([0 if start is None else start.epochs for start in turns.starts], np.int64)[before]
    resumed = np.array([start is not None and start.resumes is not None for start in turns.starts], bool)[before]
    is_first = np.append(True, ~again)
    return bool(
        (np.diff(numbers)[again] == 1).all()
        and (np.diff(epochs.column(TIME))[again] >= 0).all()
        and (numbers <= planned).all()
        and (resumed | (numbers == 1))[is_first].all()
    )


def _have_rates(epochs: EpochColumns, before: Numbers, turns: Turns, view: RunView) -> bool:
    """True if every learning rate is that of the schedule (`integrity.bounds`)."""
    default = view.config.training.learning_rate
    rates = [default if start is None else start.hyperparameters.get("learning_rate", default)
             for start in turns.starts]  # fmt: skip
    if any(isinstance(rate, str) for rate in rates):
        return False
    overflows = np.array([start is not None and start.precision == "mixed_float16" for start in turns.starts], bool)
    first, found = np.array(rates, np.float64)[before], epochs.losses[:, 2]
    due = first * (1 - (epochs.column(EPOCH) - 1) / view.max_epochs)
    slack = RATE_TOLERANCE * first
    most = np.where(overflows[before], first, due)
    return bool(((due - slack <= found) & (found <= most + slack)).all())
