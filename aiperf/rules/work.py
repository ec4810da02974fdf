"""The work of many trials in columns: their score, and the score over time.

A long run has no object for each epoch. All numbers are exact: sums that 64 bits may not hold are
those of Python's integers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiperf.facts import UNCLASSIFIED
from aiperf.network.operations import Operations
from aiperf.rules.score import GRID_MS, operations_per_second, regulated

Numbers = NDArray[np.int64]
Exact = NDArray[Any]
"""Whole numbers of 64 bits, or Python's."""

NEVER = np.iinfo(np.int64).max
"""Time of death of a trial that did not die."""

_SAFE = 1 << 62
_EPOCHS = 1 << 22
"""Upper limit above the number of any epoch (`aiperf.facts`)."""

BLOCK = 4096
"""Trials whose changes are found together."""


@dataclass(frozen=True, slots=True, eq=False)
class WorkColumns:
    """The epochs and reports of all trials, which are meant by their places from 0.

    `epochs` has a row for each: place of the trial, time, number, images trained and evaluated, and
    correct ones of those evaluated; further columns are the caller's. `reports` has the first five
    of these. Both are in the order of trials, and epochs in that of their numbers.
    """

    costs: tuple[Operations, ...]
    died_ms: Numbers
    epochs: Numbers
    reports: Numbers

    def of_trial(self, place: int) -> WorkColumns:
        """The work of one trial, by its place; its own is 0."""
        epochs, reports = (_rows_of(rows, place, place + 1).copy() for rows in (self.epochs, self.reports))
        epochs[:, 0] = reports[:, 0] = 0
        return WorkColumns(self.costs[place : place + 1], self.died_ms[place : place + 1], epochs, reports)

    def __len__(self) -> int:
        return len(self.costs)

    def images_done(self, at_ms: int, alive: bool = False) -> tuple[Exact, Exact]:
        """Images of each trial, trained and evaluated, that count.

        `alive`: as if none had died.
        """
        epochs = self.epochs[self.epochs[:, 1] <= at_ms]
        ends = np.searchsorted(epochs[:, 0], np.arange(len(self) + 1))
        sums = [cumulative(epochs[:, column]) for column in (3, 4)]
        trained, evaluated = ((total[ends[1:]] - total[ends[:-1]]).astype(total.dtype) for total in sums)
        # A report counts while its epoch is not complete: from then on the epoch's own images do.
        finished = np.zeros(len(self), np.int64)
        np.maximum.at(finished, epochs[:, 0], epochs[:, 2])
        reports = self.reports[self.reports[:, 1] <= at_ms]
        counts = reports[:, 2] > finished[reports[:, 0]]
        if not alive:
            counts &= self.died_ms[reports[:, 0]] > at_ms
        last = reports[counts]
        # The furthest report of each trial is the last row of its block.
        last = last[np.lexsort((last[:, 4], last[:, 3], last[:, 2], last[:, 0]))]
        last = last[np.append(np.diff(last[:, 0]) != 0, True)] if len(last) else last
        trained[last[:, 0]] += last[:, 3]
        evaluated[last[:, 0]] += last[:, 4]
        return trained, evaluated

    def operations(self, places: Numbers, trained: Exact, evaluated: Exact) -> Exact:
        """Operations of images of some trials, one number of each for each place."""
        total = _whole([cost.total for cost in self.costs])
        forward = _whole([cost.forward for cost in self.costs])
        # NumPy's products wrap around silently at 64 bits: Python's integers take over before that.
        most = [int(column.max(initial=0)) for column in (total, trained, forward, evaluated)]
        if most[0] * most[1] + most[2] * most[3] >= _SAFE:
            total, forward, trained, evaluated = (
                column.astype(object) for column in (total, forward, trained, evaluated)
            )
        found: Exact = trained * total[places] + evaluated * forward[places]
        return found

    def operations_done(self, at_ms: int, alive: bool = False) -> Exact:
        """Operations of each trial up to a moment."""
        return self.operations(np.arange(len(self)), *self.images_done(at_ms, alive))

    @property
    def judged(self) -> NDArray[np.bool_]:
        """True for each epoch in which images were evaluated and classified."""
        return judged(self.epochs[:, 4], self.epochs[:, 5])

    def errors(self) -> tuple[Numbers, NDArray[np.float64]]:
        """Time and error of each evaluated epoch, as `aiperf.rules.score.error_of`."""
        rows = self.epochs[self.judged]
        evaluated, correct = rows[:, 4], rows[:, 5]
        return rows[:, 1], np.maximum((evaluated - correct) / evaluated, 1 / (2 * evaluated))

    def best_error(self, at_ms: int) -> float:
        """Error of the best measured epoch completed by `at_ms`; 1.0 if there is none."""
        times, errors = self.errors()
        return float(errors[times <= at_ms].min(initial=1.0)) if (times <= at_ms).any() else 1.0

    def accuracies(self) -> NDArray[np.float64]:
        """Top-1 accuracy after each epoch; NaN if nothing was evaluated or classified."""
        evaluated, correct = self.epochs[:, 4], self.epochs[:, 5]
        found = np.full(len(correct), np.nan)
        np.divide(correct, evaluated, out=found, where=self.judged)
        return found

    def changes(self) -> tuple[Numbers, Exact]:
        """Times and amounts by which the work that counts changes; negative at a death."""
        parts = [self._changes(first, min(first + BLOCK, len(self))) for first in range(0, len(self), BLOCK)]
        times = [part[0] for part in parts]
        return np.concatenate([np.zeros(0, np.int64), *times]), np.concatenate(
            [np.zeros(0, np.int64), *(part[1] for part in parts)]
        )

    def _changes(self, first: int, end: int) -> tuple[Numbers, Exact]:
        """Find the changes of some trials: the work at each moment less that at the one before."""
        epochs, reports = (_rows_of(rows, first, end) for rows in (self.epochs, self.reports))
        reports = reports[np.lexsort((reports[:, 4], reports[:, 3], reports[:, 2], reports[:, 0]))]
        died = np.flatnonzero(self.died_ms[first:end] != NEVER) + first
        # Trial, time, number of a completed epoch, its images, and place of a report from 1.
        events = np.zeros((len(epochs) + len(reports) + len(died), 6), np.int64)
        events[: len(epochs), :5] = epochs[:, :5]
        own = events[len(epochs) : len(epochs) + len(reports)]
        own[:, :2], own[:, 5] = reports[:, :2], np.arange(1, len(reports) + 1)
        events[len(epochs) + len(reports) :, :2] = np.column_stack([died, self.died_ms[died]])
        events = events[np.lexsort((events[:, 1], events[:, 0]))]
        trials, times = events[:, 0], events[:, 1]
        if not len(events):
            return times, times
        is_first = np.append(True, trials[1:] != trials[:-1])
        trained, evaluated = (_within(events[:, column], is_first) for column in (3, 4))
        # A key of a later trial is above all keys of earlier ones, so that the running maximum
        # begins anew at each trial.
        finished = np.maximum.accumulate(key_of(trials, events[:, 2])) - key_of(trials)
        # The furthest report so far: they are in the order of trials and positions.
        furthest = np.concatenate([np.full((1, 5), -1), reports])[np.maximum.accumulate(events[:, 5])]
        is_open = (furthest[:, 0] == trials) & (furthest[:, 2] > finished) & (self.died_ms[trials] > times)
        trained = trained + np.where(is_open, furthest[:, 3], 0)
        evaluated = evaluated + np.where(is_open, furthest[:, 4], 0)
        # Of several events at one moment only the state after the last one is seen.
        is_last = np.append((np.diff(trials) != 0) | (np.diff(times) != 0), True)
        done = self.operations(trials[is_last], trained[is_last], evaluated[is_last])
        before = np.append(np.zeros(1, done.dtype), done[:-1])
        # The first change of a trial is from nothing, not from the end of the trial before.
        before[np.append(True, np.diff(trials[is_last]) != 0)] = 0
        changed = done != before
        return times[is_last][changed], (done - before)[changed]


def _rows_of(rows: Numbers, first: int, end: int) -> Numbers:
    """The rows of some trials."""
    begin, behind = np.searchsorted(rows[:, 0], (first, end))
    return rows[begin:behind]


def _whole(values: Sequence[int]) -> Exact:
    """Numbers of any size."""
    return np.array(values, np.int64 if max(values, default=0) < _SAFE else object)


def judged(evaluated: Numbers, correct: Numbers) -> NDArray[np.bool_]:
    """True for each epoch with these images that has an accuracy."""
    found: NDArray[np.bool_] = (correct != UNCLASSIFIED) & (evaluated > 0)
    return found


def key_of(places: Numbers, epochs: Numbers | int = 0) -> Numbers:
    """A number for each epoch of a trial that grows with the place, and in it with the epoch."""
    return places * _EPOCHS + epochs


def cumulative(values: Exact) -> Exact:
    """The sums of the first 0, 1, 2, ... of numbers that are not negative."""
    if int(values.max(initial=0)) * len(values) >= _SAFE:
        values = values.astype(object)
    return np.concatenate([np.zeros(1, values.dtype), np.cumsum(values)])


def _within(values: Numbers, is_first: NDArray[np.bool_]) -> Exact:
    """The sum of the numbers of each trial up to each row."""
    sums = cumulative(values)
    begins = np.flatnonzero(is_first)
    found: Exact = sums[1:] - np.repeat(sums[begins], np.diff(np.append(begins, len(values))))
    return found


class Totals:
    """The sums of the first 1, 2, 3, ... of exact numbers, in 16 bytes each if they fit."""

    # The sums of 2^23 low parts, and of as many high ones, fit into 64 bits.
    _BITS = 40

    def __init__(self, values: Exact) -> None:
        self._high, self._low = values, np.zeros(0, np.int64)
        if values.dtype == object:
            self._high = np.cumsum(values)
        else:
            self._high = np.cumsum(values >> self._BITS)
            self._low = np.cumsum(values & ((1 << self._BITS) - 1))

    def up_to(self, count: int) -> int:
        """The sum of the first numbers."""
        if not count:
            return 0
        if not len(self._low):
            return int(self._high[count - 1])
        return (int(self._high[count - 1]) << self._BITS) + int(self._low[count - 1])


@dataclass(frozen=True, slots=True)
class TimelinePoint:
    """Score, error and regulated score as if the run had ended at `t_ms` after its start."""

    t_ms: int
    ops: float
    error: float
    regulated_ops: float


class Course:
    """The work and the best error of trials over time: sorted once, for any number of timelines."""

    def __init__(self, work: WorkColumns) -> None:
        times, amounts = work.changes()
        order = np.argsort(times)
        self._change_times, self._totals = times[order], Totals(amounts[order])
        times, errors = work.errors()
        order = np.argsort(times)
        self._error_times, self._errors = times[order], np.minimum.accumulate(errors[order])

    def timeline(self, start_ms: int, end_ms: int, grid_ms: int = GRID_MS) -> tuple[TimelinePoint, ...]:
        """Points on a grid (of 0.1 hour by the rules) from the start, and at the end.

        Each point is the score and the error of a run that ended at that moment.
        """
        points = []
        for at_ms in _grid(start_ms, end_ms, grid_ms):
            done = bisect_right(self._change_times, at_ms)
            seen = bisect_right(self._error_times, at_ms)
            ops = operations_per_second(self._totals.up_to(done), at_ms - start_ms)
            error = float(self._errors[seen - 1]) if seen else 1.0
            points.append(TimelinePoint(at_ms - start_ms, ops, error, regulated(ops, error)))
        return tuple(points)


def _grid(start_ms: int, end_ms: int, grid_ms: int) -> Iterator[int]:
    yield from range(start_ms + grid_ms, end_ms, grid_ms)
    if end_ms > start_ms:
        yield end_ms
