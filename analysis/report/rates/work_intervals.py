"""Intervals of work in columns, one for each epoch that counts; an object only if asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiperf.records.columns import blocks_of
from aiperf.rules.work import Exact, Numbers, WorkColumns
from analysis.reading.run_data import RunData
from analysis.report.intervals import code, moments_of


@dataclass(frozen=True, slots=True)
class WorkInterval:
    """Consecutive work of one trial that counts. Times are on the primary's clock."""

    replica: int
    trial: int
    first_epoch: int
    begin_ms: int
    end_ms: int
    images: int
    """Trained and evaluated."""
    operations: int

    @property
    def duration_ms(self) -> int:
        """Length of the interval; 0 if its end is not after its beginning."""
        return max(0, self.end_ms - self.begin_ms)


@dataclass(frozen=True, eq=False)
class WorkIntervalColumns:
    """Intervals of work in columns, as `WorkInterval`."""

    replicas: Numbers
    trials: Numbers
    first_epochs: Numbers
    begins_ms: Numbers
    ends_ms: Numbers
    images: Numbers
    operations: Exact

    def __len__(self) -> int:
        return len(self.trials)

    def __iter__(self) -> Iterator[WorkInterval]:
        columns = (
            self.replicas,
            self.trials,
            self.first_epochs,
            self.begins_ms,
            self.ends_ms,
            self.images,
            self.operations,
        )
        for row in zip(*(column.tolist() for column in columns), strict=True):
            yield WorkInterval(*row)

    def only(self, wanted: NDArray[Any] | slice) -> WorkIntervalColumns:
        """Some of the rows, by marks or by places."""
        columns = (self.replicas, self.trials, self.first_epochs, self.begins_ms, self.ends_ms)
        return WorkIntervalColumns(*(column[wanted] for column in (*columns, self.images, self.operations)))

    @cached_property
    def durations_ms(self) -> Numbers:
        """The length of each; 0 if its end is not after its beginning."""
        return np.asarray(np.maximum(self.ends_ms - self.begins_ms, 0), np.int64)

    @property
    def total_operations(self) -> int:
        """The operations of all."""
        return sum(self.operations.tolist())

    @property
    def span_ms(self) -> int:
        """Time from the beginning of the first to the end of the last one; 0 without any."""
        return int(self.ends_ms.max() - self.begins_ms.min()) if len(self) else 0

    @property
    def spans(self) -> Iterator[tuple[int, slice]]:
        """The rows of each trial."""
        for trial, begin, end in blocks_of(self.trials):
            yield trial, slice(begin, end)


class WorkIntervals(Mapping[int, list[WorkInterval]]):
    """The intervals of every trial that has some, by trial; those of a trial are in order of time.

    The unfinished epoch that the end cut short comes last.
    """

    def __init__(self, every: WorkIntervalColumns) -> None:
        self.every = every
        self._spans = dict(every.spans)

    def __getitem__(self, trial: int) -> list[WorkInterval]:
        return list(self.every.only(self._spans[trial]))

    def __iter__(self) -> Iterator[int]:
        return iter(self._spans)

    def __len__(self) -> int:
        return len(self._spans)

    def rows(self) -> Iterator[tuple[int, slice]]:
        """The rows of each trial in `every`."""
        yield from self._spans.items()

    def first_begins_ms(self) -> list[int]:
        """The beginning of each trial's first interval."""
        found: list[int] = self.every.begins_ms[[rows.start for rows in self._spans.values()]].tolist()
        return found


def work_intervals(data: RunData) -> WorkIntervals:
    """One interval for each epoch that counts, by trial; an epoch cut short by the end comes last.

    An epoch begins when the one before it ended. The first one begins with the trial's first phase
    of training, or with its record if there is none.
    """
    if "work_intervals" not in data.computed:
        data.computed["work_intervals"] = WorkIntervals(_pieces(data))
    found: WorkIntervals = data.computed["work_intervals"]
    return found


def _training_begins(data: RunData) -> dict[int, int]:
    """The time of each trial's first phase of training."""
    begins: dict[int, int] = {}
    for replica in data.ledger.replicas.values():
        for writer in replica.phases:
            own = moments_of(replica, writer, data.ledger.offsets_ms.get(writer, 0))
            own = own.only((own.phases == code("train")) & (own.trials >= 0))
            trials, first = np.unique(own.trials, return_index=True)  # they are in order of time
            for trial, began_ms in zip(trials.tolist(), own.times_ms[first].tolist(), strict=True):
                begins[trial] = min(began_ms, begins.get(trial, began_ms))
    return begins


def _pieces(data: RunData) -> WorkIntervalColumns:
    begins, work, trials = _training_begins(data), data.work.columns, np.array(data.work.trials, np.int64)
    began = np.zeros(len(trials), np.int64)
    replicas = np.full(len(trials), -1, np.int64)
    there = np.zeros(len(trials), bool)
    for place, number in enumerate(data.work.trials):
        entry = data.ledger.trials[number]
        if entry.begun is not None and entry.started_ms is not None:
            began[place] = begins.get(number, data.ledger.corrected(entry.writer, entry.started_ms))
            replicas[place], there[place] = entry.begun.replica, True
    rows, trained, evaluated = _joined(_complete(work, began), _open(work, began, data.end_ms))
    kept = there[rows[:, 0]]
    rows, places = rows[kept], rows[kept, 0]
    operations = work.operations(places, trained[kept], evaluated[kept])
    _, first_epochs, begins_ms, ends_ms, images = rows.T
    return WorkIntervalColumns(replicas[places], trials[places], first_epochs, begins_ms, ends_ms, images, operations)


Parts = tuple[Numbers, Exact, Exact]
"""Rows of place of the trial, first epoch, begin, end and images; images trained and evaluated."""


def _joined(one: Parts, other: Parts) -> Parts:
    """The rows of both by trial, those of the first before those of the second."""
    rows, trained, evaluated = (np.concatenate(pair) for pair in zip(one, other, strict=True))
    order = np.argsort(rows[:, 0], kind="stable")
    return rows[order], trained[order], evaluated[order]


def _complete(work: WorkColumns, began: Numbers) -> Parts:
    """The completed epochs in order of time."""
    epochs = work.epochs[np.lexsort((work.epochs[:, 1], work.epochs[:, 0]))]
    places, ends = epochs[:, 0], epochs[:, 1]
    begins = began[places]
    again = np.flatnonzero(places[1:] == places[:-1]) + 1
    begins[again] = ends[again - 1]
    rows = np.column_stack([places, epochs[:, 2], begins, ends, epochs[:, 3] + epochs[:, 4]])
    return rows, epochs[:, 3], epochs[:, 4]


def _open(work: WorkColumns, began: Numbers, end_ms: int) -> Parts:
    """Find the work that counts of epochs that were not completed."""
    count = len(work)
    epochs = work.epochs[np.lexsort((work.epochs[:, 1], work.epochs[:, 0]))]
    last_epochs, begins, last_ms = np.zeros(count, np.int64), began.copy(), np.full(count, -1, np.int64)
    # Of several rows of a trial, the last one is kept.
    last_epochs[epochs[:, 0]], begins[epochs[:, 0]] = epochs[:, 2], epochs[:, 1]
    np.maximum.at(last_ms, work.reports[:, 0], work.reports[:, 1])
    reports = np.unique(work.reports[:, 0])
    # Without reports the same work is that of completed epochs: the difference is what reports
    # alone stand for.
    before = WorkColumns(work.costs, work.died_ms, work.epochs, work.reports[:0]).images_done(end_ms)
    trained, evaluated = (
        every[reports] - own[reports] for every, own in zip(work.images_done(end_ms), before, strict=True)
    )
    kept = (trained + evaluated) != 0
    reports, trained, evaluated = reports[kept], trained[kept], evaluated[kept]
    rows = np.column_stack(
        [reports, last_epochs[reports] + 1, begins[reports], last_ms[reports], (trained + evaluated).astype(np.int64)]
    )
    return rows, trained, evaluated


def sustained_ops(own: WorkIntervalColumns) -> float | None:
    """Operations per second from the beginning of the first interval to the end of the last one."""
    return own.total_operations * 1000 / own.span_ms if own.span_ms > 0 else None
