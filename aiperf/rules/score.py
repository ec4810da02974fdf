"""The score (spec: OPS over wall time; regulated score): pure functions of work and its times.

Work done = images trained x (forward + backward) + images evaluated x forward. A completed epoch
counts whatever becomes of its trial; an unfinished epoch counts, up to its last progress report,
only while its trial is alive. Times are integer milliseconds, operations are integers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
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
