"""The score by definition: what the columns of `aiperf.rules.work` must say."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from aiperf.facts import UNCLASSIFIED, EpochFacts, ProgressFacts, Stamped
from aiperf.network.operations import Operations
from aiperf.rules.score import error_of
from aiperf.rules.work import NEVER, WorkColumns


@dataclass(frozen=True, slots=True)
class TrialWork:
    """The work of one trial. `died_ms`: when its unfinished epoch was lost."""

    cost: Operations
    epochs: tuple[Stamped[EpochFacts], ...]
    progress: tuple[Stamped[ProgressFacts], ...] = ()
    died_ms: int | None = None

    def images_done(self, at_ms: int) -> tuple[int, int]:
        done = [epoch.body for epoch in self.epochs if epoch.time_ms <= at_ms]
        finished = max((epoch.epoch for epoch in done), default=0)
        alive = self.died_ms is None or self.died_ms > at_ms
        reports = [report.body for report in self.progress if alive and report.time_ms <= at_ms]
        last = max((report for report in reports if report.epoch > finished), key=lambda r: r.position, default=None)
        images = [(item.images_trained, item.images_evaluated) for item in done]
        images += [(last.images_trained, last.images_evaluated)] if last is not None else []
        return sum(trained for trained, _ in images), sum(evaluated for _, evaluated in images)

    def errors(self) -> list[tuple[int, float]]:
        judged = [item for item in self.epochs if item.body.correct is not None and item.body.images_evaluated > 0]
        return [(item.time_ms, error_of(item.body.correct or 0, item.body.images_evaluated)) for item in judged]


def work_done(trials: Iterable[TrialWork], at_ms: int) -> int:
    return sum(trial.cost.work(*trial.images_done(at_ms)) for trial in trials)


def best_error(trials: Iterable[TrialWork], at_ms: int) -> float:
    return min((error for trial in trials for time_ms, error in trial.errors() if time_ms <= at_ms), default=1.0)


def columns_of(trials: Iterable[TrialWork]) -> WorkColumns:
    """The same work in columns."""
    every = list(trials)
    epochs = [
        (
            place,
            item.time_ms,
            body.epoch,
            body.images_trained,
            body.images_evaluated,
            UNCLASSIFIED if body.correct is None else body.correct,
        )
        for place, trial in enumerate(every)
        for item in sorted(trial.epochs, key=lambda item: item.body.epoch)
        for body in (item.body,)
    ]
    reports = [
        (place, item.time_ms, *item.body.position) for place, trial in enumerate(every) for item in trial.progress
    ]
    died = [NEVER if trial.died_ms is None else trial.died_ms for trial in every]
    return WorkColumns(
        tuple(trial.cost for trial in every),
        np.array(died, np.int64),
        np.array(epochs, np.int64).reshape(-1, 6),
        np.array(reports, np.int64).reshape(-1, 5),
    )
