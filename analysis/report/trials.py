"""Trials as rows of the report."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isnan

import numpy as np
from numpy.typing import NDArray

from aiperf.facts import UNCLASSIFIED
from aiperf.records.entries import TrialLedger, when
from aiperf.rules.work import NEVER, WorkColumns
from aiperf.wire.messages import CROWDED, UNFIT
from analysis.reading.run_data import RunData
from analysis.report.model import TrialPart


@dataclass(frozen=True, slots=True)
class Result:
    """Result of a trial within the run."""

    trained: int
    evaluated: int
    operations: int
    operations_if_alive: int
    """Had it not died."""
    epochs: int
    best_accuracy: float | None
    """Best accuracy of a completed epoch; one without evaluated images counts as 0."""
    best_training_accuracy: float | None
    died_ms: int | None


def trial_parts(data: RunData) -> tuple[TrialPart, ...]:
    """The rows of all trials, by id."""
    results = _results(data.work.columns, data.end_ms)
    return tuple(
        _part(data, data.ledger.trials[number], result)
        for number, result in zip(data.work.trials, results, strict=True)
    )


def _results(work: WorkColumns, end_ms: int) -> Iterator[Result]:
    trained, evaluated = work.images_done(end_ms)
    operations = work.operations(np.arange(len(work)), trained, evaluated)
    alive = work.operations_done(end_ms, alive=True)
    epochs = np.bincount(work.epochs[:, 0], minlength=len(work))
    best = np.zeros(len(work))
    np.maximum.at(best, work.epochs[:, 0], np.nan_to_num(work.accuracies()))
    columns = (trained, evaluated, operations, alive, epochs, best, _training_accuracies(work), work.died_ms)
    for done, judged, amount, living, count, accuracy, training, died_ms in zip(
        *(c.tolist() for c in columns), strict=True
    ):
        yield Result(
            done,
            judged,
            amount,
            living,
            count,
            accuracy if count else None,
            None if isnan(training) else training,
            None if died_ms == NEVER else died_ms,
        )


def _training_accuracies(work: WorkColumns) -> NDArray[np.float64]:
    """The best of each trial's epochs; NaN if none counted them."""
    rows = work.epochs[(work.epochs[:, 6] != UNCLASSIFIED) & (work.epochs[:, 3] > 0)]
    best = np.full(len(work), np.nan)
    np.fmax.at(best, rows[:, 0], rows[:, 6] / rows[:, 3])  # of a NaN and a number, the number
    return best


def _part(data: RunData, entry: TrialLedger, result: Result) -> TrialPart:
    """The row of a trial."""
    state, reason = _state(data, entry)
    facts = data.architectures.get(entry.started.architecture) if entry.started else None
    began_ms = data.ledger.corrected(entry.writer, entry.started_ms) if entry.started_ms is not None else None
    issued, started, begun = entry.issued, entry.started, entry.begun
    return TrialPart(
        id=entry.trial,
        replica=begun.replica if begun else issued.replica if issued else -1,
        round=started.round if started else issued.round if issued else 0,
        architecture=started.architecture if started else None,
        parent=started.parent if started else None,
        morphs=started.morphs if started else (),
        weights_from=started.weights_from if started else None,
        point=started.point if started else issued.point if issued else 0,
        base=started.base if started else issued.base if issued else None,
        hyperparameters=begun.hyperparameters if begun else {},
        epochs=result.epochs,
        best_accuracy=result.best_accuracy,
        best_training_accuracy=result.best_training_accuracy,
        predicted_accuracy=entry.ended.body.predicted_accuracy if entry.ended else None,
        images_trained=result.trained,
        images_evaluated=result.evaluated,
        operations=result.operations,
        lost_operations=result.operations_if_alive - result.operations,
        precision=begun.precision if begun else None,
        state=state,
        failure_reason=reason,
        started_s=_seconds(data, began_ms),
        ended_s=_seconds(data, _last_ms(data, entry, result.died_ms)),
        image_operations=facts.cost.total if facts else None,
        parameters=facts.parameters if facts else None,
        depth=facts.depth if facts else None,
    )


def _seconds(data: RunData, moment_ms: int | None) -> float | None:
    if moment_ms is None or data.start_ms is None:
        return None
    return (moment_ms - data.start_ms) / 1000


def _last_ms(data: RunData, entry: TrialLedger, died_ms: int | None) -> int | None:
    """Time of the trial's end, failure or loss; the end of the run if it was still training."""
    if entry.started_ms is None:
        return None
    if entry.ended is not None:
        return min(data.end_ms, data.ledger.corrected(entry.writer, entry.ended.time_ms))
    return min(data.end_ms, died_ms) if died_ms is not None else data.end_ms


def _state(data: RunData, entry: TrialLedger) -> tuple[str, str | None]:
    if entry.failed is not None:
        body = entry.failed.body
        return "failed", f"{body.kind}: {body.reason}"
    replica = entry.begun.replica if entry.begun else entry.issued.replica if entry.issued else -1
    losses = sorted(data.ledger.replica(replica).losses, key=when) if replica >= 0 else []
    died_ms = data.ledger.died_ms(entry)
    if died_ms is not None:
        return "lost", next(
            (loss.body.reason for loss in losses if loss.time_ms == died_ms), "its primary died or was stopped"
        )
    if entry.ended is not None:
        return entry.ended.body.reason, None
    if entry.begun is None and losses:
        return "lost", losses[-1].body.reason
    return ("running" if data.ended == "unfinished" else "stopped"), None


def most_accurate(trials: Sequence[TrialPart], most: int) -> list[TrialPart]:
    """All trials by id; of more than `most`, the most accurate ones."""
    if len(trials) <= most:
        return list(trials)
    return sorted(trials, key=lambda trial: (-(trial.best_accuracy or -1.0), trial.id))[:most]


def chosen_by_failure(data: RunData) -> int:
    """Trainings that failed or were cancelled, so that the search went on without them.

    Not one that failed for its machine, if another one resumes it, or if its replica was given none
    since by the same primary: the kind of a failure is a word of the program that let it fail.
    """
    trials = data.ledger.trials
    issued = [trial.issued for _, trial in sorted(trials.items()) if trial.issued is not None]
    # Of each replica and primary the last one, and those that others resume.
    excused = {*{(job.replica, job.claim): job.trial for job in issued}.values(), *(job.resumes for job in issued)}
    failed = {number: trial.failed.body.kind for number, trial in trials.items() if trial.failed is not None}
    return sum(kind not in (CROWDED, UNFIT) or number not in excused for number, kind in failed.items())
