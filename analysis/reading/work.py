"""The work of all trials within the run in columns, and the epochs of one trial on demand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from aiperf.facts import Stamped
from aiperf.network.operations import Operations
from aiperf.records.bodies import EpochCompleted
from aiperf.records.columns import CORRECT, CORRECT_TRAINED, EPOCH, EVALUATED, TIME, TRAINED, Epochs, joined
from aiperf.records.entries import TrialLedger
from aiperf.records.ledger import Ledger
from aiperf.rules.work import NEVER, Numbers, WorkColumns

_OF_REPORT = (TIME, EPOCH, TRAINED, EVALUATED)
_OF_EPOCH = (*_OF_REPORT, CORRECT, CORRECT_TRAINED)


@dataclass(frozen=True)
class Work:
    """The work of every trial, without that before the release or after the end."""

    ledger: Ledger
    costs: Mapping[int, Operations]
    """Operations for an image, by trial."""
    start_ms: int
    end_ms: int

    @cached_property
    def trials(self) -> list[int]:
        """The ids, in order."""
        return sorted(self.ledger.trials)

    def __len__(self) -> int:
        return len(self.trials)

    def epochs_of(self, trial: int) -> list[Stamped[EpochCompleted]]:
        """The epochs of a trial by number, at the primary's times."""
        entry = self.ledger.trials[trial]
        every = [
            Stamped(self.ledger.corrected(entry.writer, epoch.time_ms), epoch.body)
            for _, epoch in sorted(entry.epochs.items())
        ]
        return [epoch for epoch in every if self.start_ms <= epoch.time_ms <= self.end_ms]

    @cached_property
    def columns(self) -> WorkColumns:
        """Work of all trials in the order of their ids."""
        entries = [self.ledger.trials[number] for number in self.trials]
        died = [self.ledger.work_died_ms(entry) for entry in entries]
        reports = [entry.progress[:, _OF_REPORT] for entry in entries]
        return WorkColumns(
            tuple(self.costs[number] for number in self.trials),
            np.array([NEVER if moment is None else moment for moment in died], np.int64),
            _in_order(self._within(on_one_clock(self.ledger, entries, [epoch_rows(entry) for entry in entries]))),
            self._within(on_one_clock(self.ledger, entries, reports)),
        )

    def _within(self, rows: Numbers) -> Numbers:
        return rows[(rows[:, 1] >= self.start_ms) & (rows[:, 1] <= self.end_ms)]


def every_epoch(ledger: Ledger) -> Epochs:
    """Every completed epoch by trial and number, at the primary's times, also if too late."""
    entries = [entry for _, entry in sorted(ledger.trials.items())]
    parts = []
    for entry in entries:
        rows = entry.epochs.rows
        own = rows.only(np.argsort(rows.column(EPOCH), kind="stable"))
        # Of a copy, which `only` makes of rows by places: the ledger keeps the writer's times.
        own.whole[:, TIME] -= ledger.offsets_ms.get(entry.writer, 0)
        parts.append(own)
    return joined([Epochs(), *parts])


def on_one_clock(ledger: Ledger, entries: Sequence[TrialLedger], parts: Sequence[Numbers]) -> Numbers:
    """The rows of trials, which begin with a time: on the primary's clock, behind their places."""
    lengths = [len(part) for part in parts]
    offsets = [ledger.offsets_ms.get(entry.writer, 0) for entry in entries]
    rows = np.concatenate([np.zeros((0, parts[0].shape[1] if parts else len(_OF_EPOCH)), np.int64), *parts])
    rows[:, 0] -= np.repeat(np.array(offsets, np.int64), lengths)
    return np.column_stack([np.repeat(np.arange(len(parts)), lengths), rows])


def _in_order(rows: Numbers) -> Numbers:
    """Epochs behind the places of their trials, in order of both."""
    return rows[np.lexsort((rows[:, 2], rows[:, 0]))]


def epoch_rows(entry: TrialLedger) -> Numbers:
    """Time, number, images and correct ones, evaluated and trained, of each epoch, as recorded."""
    return entry.epochs.rows.whole[:, _OF_EPOCH]
