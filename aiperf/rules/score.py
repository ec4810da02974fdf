"""The score (spec: OPS over wall time; regulated score): pure functions of work and its times.

Work done = images trained x (forward + backward) + images evaluated x forward. A completed epoch
counts whatever becomes of its trial; an unfinished epoch counts, up to its last progress report,
only while its trial is alive. Times are integer milliseconds, operations are integers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import log

from aiperf.facts import EpochFacts, ProgressFacts, Stamped
from aiperf.network.operations import Operations

GRID_MS = 360_000
"""Spacing of the timeline: 0.1 hour."""


@dataclass(frozen=True, slots=True)
class TrialWork:
    """The work of one trial. `died_ms`: its failure, or the loss or last sign of its replica."""

    cost: Operations
    epochs: tuple[Stamped[EpochFacts], ...]
    progress: tuple[Stamped[ProgressFacts], ...] = ()
    died_ms: int | None = None


@dataclass(frozen=True, slots=True)
class TimelinePoint:
    """Score, error and regulated score as if the run had ended at `t_ms` after its start."""

    t_ms: int
    ops: float
    error: float
    regulated_ops: float


def work_done(trials: Iterable[TrialWork], at_ms: int) -> int:
    """Operations done by all trials up to the moment `at_ms` (inclusive)."""
    return sum(_trial_work(trial, at_ms) for trial in trials)


def _trial_work(trial: TrialWork, at_ms: int) -> int:
    return trial.cost.work(*images_done(trial, at_ms))


def images_done(trial: TrialWork, at_ms: int) -> tuple[int, int]:
    """Images trained and evaluated by a trial up to the moment `at_ms` that count."""
    trained = evaluated = finished = 0
    for epoch in trial.epochs:
        if epoch.time_ms <= at_ms:
            body = epoch.body
            trained += body.images_trained
            evaluated += body.images_evaluated
            finished = body.epoch if body.epoch > finished else finished
    if trial.died_ms is not None and trial.died_ms <= at_ms:
        return trained, evaluated
    open_epoch = [p.body for p in trial.progress if p.time_ms <= at_ms and p.body.epoch > finished]
    last = max(open_epoch, key=lambda report: report.position, default=None)
    if last is None:
        return trained, evaluated
    return trained + last.images_trained, evaluated + last.images_evaluated


def operations_per_second(operations: int, duration_ms: int) -> float:
    """OPS over wall time: the correctly rounded quotient. Zero if no time has passed."""
    return operations * 1000 / duration_ms if duration_ms > 0 else 0.0


def error_of(correct: int, evaluated: int) -> float:
    """1 - top-1 accuracy, at least 1 / (2 x evaluated images), so that its logarithm exists."""
    return max((evaluated - correct) / evaluated, 1 / (2 * evaluated))


def best_error(trials: Iterable[TrialWork], at_ms: int) -> float:
    """Error of the best measured epoch completed by `at_ms`; 1.0 if there is none."""
    return min((error for trial in trials for time_ms, error in errors_of(trial) if time_ms <= at_ms), default=1.0)


def errors_of(trial: TrialWork) -> Iterator[tuple[int, float]]:
    """Time and error of each evaluated epoch of a trial."""
    for epoch in trial.epochs:
        facts = epoch.body
        if facts.correct is not None and facts.images_evaluated > 0:
            yield epoch.time_ms, error_of(facts.correct, facts.images_evaluated)


def regulated(ops: float, error: float) -> float:
    """Regulated score: -ln(error) x OPS (paper, equation 3)."""
    return -log(error) * ops if error < 1.0 else 0.0


class Course:
    """The work and the best error of trials over time: sorted once, for any number of timelines."""

    def __init__(self, trials: Iterable[TrialWork]) -> None:
        every = list(trials)
        changes = sorted(change for trial in every for change in _changes(trial))
        self._totals = list(accumulate(amount for _, amount in changes))
        self._change_times = [time_ms for time_ms, _ in changes]
        bests = sorted(item for trial in every for item in errors_of(trial))
        self._errors = list(accumulate((error for _, error in bests), min))
        self._error_times = [time_ms for time_ms, _ in bests]

    def timeline(self, start_ms: int, end_ms: int, grid_ms: int = GRID_MS) -> tuple[TimelinePoint, ...]:
        """Points on a grid (of 0.1 hour by the rules) from the start, and at the end.

        Each point equals `work_done` and `best_error` at that moment.
        """
        points = []
        for at_ms in _grid(start_ms, end_ms, grid_ms):
            done = bisect_right(self._change_times, at_ms)
            seen = bisect_right(self._error_times, at_ms)
            ops = operations_per_second(self._totals[done - 1] if done else 0, at_ms - start_ms)
            error = self._errors[seen - 1] if seen else 1.0
            points.append(TimelinePoint(at_ms - start_ms, ops, error, regulated(ops, error)))
        return tuple(points)


def timeline(
    trials: Sequence[TrialWork], start_ms: int, end_ms: int, grid_ms: int = GRID_MS
) -> tuple[TimelinePoint, ...]:
    """The timeline of some trials (`Course.timeline`)."""
    return Course(trials).timeline(start_ms, end_ms, grid_ms)


def _grid(start_ms: int, end_ms: int, grid_ms: int) -> Iterator[int]:
    yield from range(start_ms + grid_ms, end_ms, grid_ms)
    if end_ms > start_ms:
        yield end_ms


def _changes(trial: TrialWork) -> Iterator[tuple[int, int]]:
    """Times and amounts by which the work that counts changes; negative at a death."""
    moments = {epoch.time_ms for epoch in trial.epochs} | {report.time_ms for report in trial.progress}
    if trial.died_ms is not None:
        moments.add(trial.died_ms)
    before = 0
    for moment, done in _running_work(trial, sorted(moments)):
        if done != before:
            yield moment, done - before
            before = done


def _running_work(trial: TrialWork, moments: list[int]) -> Iterator[tuple[int, int]]:
    """`work_done` of a trial at each of the sorted moments.

    One sweep over epochs and reports; looking at all of them for each moment, as `images_done`
    does, would take time with the square of their number.
    """
    epochs = sorted(trial.epochs, key=lambda epoch: epoch.time_ms)
    progress = sorted(trial.progress, key=lambda report: report.time_ms)
    done = finished = next_epoch = next_report = 0
    last: ProgressFacts | None = None
    for moment in moments:
        while next_epoch < len(epochs) and epochs[next_epoch].time_ms <= moment:
            epoch = epochs[next_epoch].body
            done += trial.cost.work(epoch.images_trained, epoch.images_evaluated)
            finished = max(finished, epoch.epoch)
            next_epoch += 1
        while next_report < len(progress) and progress[next_report].time_ms <= moment:
            report = progress[next_report].body
            # Reports with equal times come in any order: `progress` may be a set's content.
            last = report if last is None or report.position > last.position else last
            next_report += 1
        alive = trial.died_ms is None or trial.died_ms > moment
        # The last report may be of an epoch that is finished since, and in `done` already.
        partial = last if alive and last is not None and last.epoch > finished else None
        yield (
            moment,
            done + (trial.cost.work(partial.images_trained, partial.images_evaluated) if partial else 0),
        )
