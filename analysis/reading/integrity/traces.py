"""The trials of a replica's file, each with its records; a replica trains one at a time."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from aiperf.records.bodies import (
    GroupExchanged,
    ServerServed,
    TrialBuilt,
    TrialEnded,
    TrialFailed,
    TrialStarted,
    WorkloadStarted,
)
from aiperf.records.columns import EVALUATED, PLACE, TRIAL, Epochs, Numbers, rows_of
from aiperf.records.damage import Damage
from analysis.reading.integrity.view import Placed, TrialTrace, WriterRecords

_OF_A_TRIAL = (TrialBuilt, GroupExchanged, ServerServed, TrialEnded)

COMPLETES = EVALUATED + 1
"""The column of steps that is 1 for an epoch and 0 for progress."""


@dataclass
class Traces:
    """The traces of one file, and the records that are not in the order of a replica's work."""

    writer: str
    science: bool = False
    """True if the trainings of the run are of scientific workloads."""
    trials: list[TrialTrace[Any]] = field(default_factory=list)
    steps: Numbers = field(default_factory=lambda: rows_of(COMPLETES + 1))
    """Progress and epochs of all trials by line, with the columns of progress and `COMPLETES`."""
    trial_of: Numbers = field(default_factory=lambda: np.zeros(0, np.int64))
    """The place in `trials` of each step."""
    epochs: Epochs = field(default_factory=Epochs)
    """The epochs among the steps."""
    failed_unstarted: list[Placed[TrialFailed]] = field(default_factory=list)
    """Failures of trials that never started."""
    damages: list[Damage] = field(default_factory=list)
    _open: TrialTrace[Any] | None = None
    _stopped: bool = False

    @property
    def file(self) -> str:
        """The file, relative to the run directory."""
        return f"history/{self.writer}.jsonl"

    def add(self, place: Placed[Any]) -> None:
        """Take in the next of the rare records."""
        body = place.body
        if isinstance(body, WorkloadStarted if self.science else TrialStarted):
            self._start(place)
        elif isinstance(body, TrialFailed):
            self._fail(place)
        elif isinstance(body, _OF_A_TRIAL):
            self._continue(place)
        elif isinstance(body, TrialStarted | WorkloadStarted):
            expected = f"{'workload' if self.science else 'trial'}_started, in a run of this suite"
            self.damages.append(place.damage("conflict", f"a training begins with {body.type}", expected))
        else:
            self.damages.append(place.damage("conflict", f"a replica wrote {body.type}", "a primary"))

    def _start(self, place: Placed[Any]) -> None:
        body = place.body
        if self._open is not None:
            found = f"trial {body.trial} starts while trial {self._open.trial} is in progress"
            self.damages.append(place.damage("conflict", found, "one trial at a time"))
        elif self._stopped:
            found = f"trial {body.trial} starts after the run has stopped the replica"
            self.damages.append(place.damage("conflict", found, "no further trial"))
        self._open = TrialTrace[Any](body.trial, self.writer, place)
        self.trials.append(self._open)

    def _fail(self, place: Placed[TrialFailed]) -> None:
        trial = place.body.trial
        last = self.trials[-1] if self.trials else None
        if last is not None and last.trial == trial and last.failed is None:
            last.failed = place  # also just after its end: what follows it may fail
        elif self._open is None:
            self.failed_unstarted.append(place)
        else:
            self._stray(place, trial)
        self._open = None

    def _continue(self, place: Placed[Any]) -> None:
        body = place.body
        if self._open is None or self._open.trial != body.trial:
            if isinstance(body, TrialEnded) and body.reason == "stopped" and self._open is None:
                self._stopped = True  # the run ended while the trial was still in search of its plan
            else:
                self._stray(place, body.trial)
            return
        if isinstance(body, TrialEnded):
            self._stopped = body.reason == "stopped"
            self._open.ended, self._open = place, None
        elif isinstance(body, TrialBuilt):
            self._open.built.append(place)
        else:
            self._open.exchanges.append(place)

    def _stray(self, place: Placed[Any], trial: int) -> None:
        self.damages.append(_stray(place.file, place.line, place.body.type, trial))

    def take_steps(self, progress: Numbers, epochs: Epochs, turns: Numbers) -> None:
        """Share progress and epochs out among the trials.

        `turns` has a row for each change: the place of the line, and the place in `trials` of the
        one in progress from there on; -1: none.
        """
        every = np.concatenate(
            [
                np.column_stack([progress, np.zeros(len(progress), np.int64)]),
                np.column_stack([epochs.whole[:, : EVALUATED + 1], np.ones(len(epochs), np.int64)]),
            ]
        )
        every = every[np.argsort(every[:, PLACE], kind="stable")]
        numbers = np.array([-1, *(trace.trial for trace in self.trials)], np.int64)
        # The turn before each line; -1 in front stands for lines before the first one.
        of = np.append(-1, turns[:, 1])[np.searchsorted(turns[:, 0], every[:, PLACE])]
        # One further, because `numbers` has the trial of the turn -1 in front.
        stray = (of < 0) | (numbers[of + 1] != every[:, TRIAL])
        for place, trial, completes in every[stray][:, (PLACE, TRIAL, COMPLETES)].tolist():
            kind = "epoch" if completes else "progress"
            self.damages.append(_stray(self.file, place + 1, kind, trial))
        self.steps, self.trial_of = every[~stray], of[~stray]
        is_epoch = self.steps[:, COMPLETES] == 1
        self.epochs = epochs.only(np.isin(epochs.column(PLACE), self.steps[is_epoch, PLACE]))
        # A file has its trials one after another, so that `trial_of` is sorted.
        bounds = np.searchsorted(self.trial_of[is_epoch], np.arange(len(self.trials) + 1)).tolist()
        for trace, begin, end in zip(self.trials, bounds[:-1], bounds[1:], strict=True):
            trace.completed = self.epochs.only(slice(begin, end))


def _stray(file: str, line: int, kind: str, trial: int) -> Damage:
    found = f"{kind} of trial {trial}, which is not in progress"
    return Damage(file, line, "conflict", found, "a record between a trial's start and its end")


def traces_of(read: WriterRecords, science: bool = False) -> Traces:
    """The traces of a replica's file, in a run of AutoML or of scientific workloads."""
    traces, turns = Traces(read.writer, science), list[tuple[int, int]]()
    for place in read.placed():
        before = traces._open
        traces.add(place)
        if traces._open is not before:
            turns.append((place.line - 1, -1 if traces._open is None else len(traces.trials) - 1))
    for line in (read.columns.witnesses.rows[:, PLACE] + 1).tolist():
        traces.damages.append(Damage(read.file, line, "conflict", "a replica wrote epoch_witnessed", "a primary"))
    traces.take_steps(read.columns.progress, read.columns.epochs, np.array(turns, np.int64).reshape(-1, 2))
    return traces
