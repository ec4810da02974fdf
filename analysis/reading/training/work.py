"""The work of all trials within the run: in columns, and of one trial as objects on demand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from aiperf.facts import UNCLASSIFIED
from aiperf.network.operations import Operations
from aiperf.records.decoding.epochs import CORRECT, EPOCH, EVALUATED, TIME, TRAINED
from aiperf.records.entries import TrialLedger
from aiperf.records.ledger import Ledger
from aiperf.rules.score import TrialWork
from aiperf.rules.work import NEVER, WorkColumns
from analysis.reading.columns import Numbers
from analysis.reading.training.progress import stamped

_OF_EPOCH = (TIME, EPOCH, TRAINED, EVALUATED, CORRECT)
_OF_REPORT = (1, 4, 5, 6)


@dataclass(frozen=True)
class Work(Mapping[int, TrialWork]):
    """The work of every trial by id, without that before the release or after the end."""

    ledger: Ledger
    costs: Mapping[int, Operations]
    """By trial."""
    reports: Mapping[int, Numbers]
    """Progress by trial that is in columns, on the clock of its writer."""
    start_ms: int
    end_ms: int

    @cached_property
    def trials(self) -> list[int]:
        """The ids, in order."""
        return sorted(self.ledger.trials)

    def __getitem__(self, number: int) -> TrialWork:
        entry = self.ledger.trials[number]
        work = self.ledger.work(entry, self.costs[number])
        own = stamped(self.reports, number, self.ledger.offsets_ms.get(entry.writer, 0))
        return replace(
            work,
            epochs=tuple(epoch for epoch in work.epochs if self.start_ms <= epoch.time_ms <= self.end_ms),
            progress=tuple(item for item in (*work.progress, *own) if self.start_ms <= item.time_ms <= self.end_ms),
        )

    def __iter__(self) -> Iterator[int]:
        return iter(self.trials)

    def __len__(self) -> int:
        return len(self.trials)

    @cached_property
    def columns(self) -> WorkColumns:
        """The same in columns; trials are in the order of their ids."""
        entries = [self.ledger.trials[number] for number in self.trials]
        died = [self.ledger.work_died_ms(entry) for entry in entries]
        return WorkColumns(
            tuple(self.costs[number] for number in self.trials),
            np.array([NEVER if moment is None else moment for moment in died], np.int64),
            _in_order(self._within(entries, [epoch_rows(entry) for entry in entries])),
            self._within(entries, [self._reports_of(entry) for entry in entries]),
        )

    def _reports_of(self, entry: TrialLedger) -> Numbers:
        objects = [(item.time_ms, *item.body.position) for item in entry.progress]
        found = np.array(objects, np.int64).reshape(-1, 4)
        own = self.reports.get(entry.trial)
        return found if own is None else np.concatenate([found, own[:, _OF_REPORT]])

    def _within(self, entries: list[TrialLedger], parts: list[Numbers]) -> Numbers:
        """The rows of all trials that are within the run, behind the places of these."""
        rows = on_one_clock(self.ledger, entries, parts)
        kept = (rows[:, 1] >= self.start_ms) & (rows[:, 1] <= self.end_ms)
        return rows[kept]


@dataclass(frozen=True, slots=True, eq=False)
class AllEpochs:
    """Every completed epoch, by trial and number, also those too late to count.

    `whole`: trial, time on the primary's clock, number, images trained and evaluated, correct ones.
    `losses`: loss, validation loss, learning rate.
    """

    whole: Numbers
    losses: NDArray[np.float64]


def every_epoch(ledger: Ledger) -> AllEpochs:
    """The epochs of a ledger."""
    entries = [entry for _, entry in sorted(ledger.trials.items())]
    rows = _in_order(on_one_clock(ledger, entries, [epoch_rows(entry) for entry in entries]))
    rows[:, 0] = np.array([entry.trial for entry in entries], np.int64)[rows[:, 0]]
    return AllEpochs(rows, np.concatenate([np.zeros((0, 3)), *map(_losses_of, entries)]))


def on_one_clock(ledger: Ledger, entries: Sequence[TrialLedger], parts: Sequence[Numbers]) -> Numbers:
    """The rows of trials, which begin with a time: on the primary's clock, behind their places."""
    lengths = [len(part) for part in parts]
    offsets = [ledger.offsets_ms.get(entry.writer, 0) for entry in entries]
    rows = np.concatenate([np.zeros((0, parts[0].shape[1] if parts else 5), np.int64), *parts])
    rows[:, 0] -= np.repeat(np.array(offsets, np.int64), lengths)
    return np.column_stack([np.repeat(np.arange(len(parts)), lengths), rows])


def _losses_of(entry: TrialLedger) -> NDArray[np.float64]:
    if (columns := entry.epochs.columns) is not None:
        return columns.losses
    rows = [(body.loss, body.validation_loss, body.learning_rate)
            for _, item in sorted(entry.epochs.items()) for body in (item.body,)]  # fmt: skip
    return np.array(rows, np.float64).reshape(-1, 3)


def _in_order(rows: Numbers) -> Numbers:
    """Epochs behind the places of their trials, in order of both."""
    return rows[np.lexsort((rows[:, 2], rows[:, 0]))]


def epoch_rows(entry: TrialLedger) -> Numbers:
    """Time, number, images and correct ones of each epoch, as they were recorded."""
    if (columns := entry.epochs.columns) is not None:
        return columns.whole[:, _OF_EPOCH]
    rows = [
        (item.time_ms, number, body.images_trained, body.images_evaluated,
         UNCLASSIFIED if body.correct is None else body.correct)
        for number, item in entry.epochs.items() for body in (item.body,)
    ]  # fmt: skip
    return np.array(rows, np.int64).reshape(-1, 5)
