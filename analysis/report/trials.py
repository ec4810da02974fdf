"""Trials as rows of the report."""

from __future__ import annotations

from collections.abc import Sequence

from aiperf.history.entries import TrialLedger, when
from aiperf.rules.score import TrialWork, images_done, work_done
from analysis.reading.run_data import RunData
from analysis.report.model import TrialPart


def trial_part(data: RunData, entry: TrialLedger, work: TrialWork) -> TrialPart:
    """The row of a trial; `work` is its work within the run."""
    state, reason = _state(data, entry)
    facts = data.architectures.get(entry.started.architecture) if entry.started else None
    began_ms = data.ledger.corrected(entry.writer, entry.started_ms) if entry.started_ms is not None else None
    issued, started, begun = entry.issued, entry.started, entry.begun
    trained, evaluated = images_done(work, data.end_ms)
    operations = work.cost.work(trained, evaluated)
    if_alive = operations
    if work.died_ms is not None:
        if_alive = work_done([TrialWork(work.cost, work.epochs, work.progress)], data.end_ms)
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
        epochs=len(work.epochs),
        best_accuracy=_best(work),
        predicted_accuracy=entry.ended.body.predicted_accuracy if entry.ended else None,
        images_trained=trained,
        images_evaluated=evaluated,
        operations=operations,
        lost_operations=if_alive - operations,
        precision=begun.precision if begun else None,
        state=state,
        failure_reason=reason,
        started_s=_seconds(data, began_ms),
        ended_s=_seconds(data, _last_ms(data, entry, work)),
        image_operations=facts.cost.total if facts else None,
        parameters=facts.parameters if facts else None,
        depth=facts.depth if facts else None,
    )


def _seconds(data: RunData, moment_ms: int | None) -> float | None:
    if moment_ms is None or data.start_ms is None:
        return None
    return (moment_ms - data.start_ms) / 1000


def _last_ms(data: RunData, entry: TrialLedger, work: TrialWork) -> int | None:
    """Time of the trial's end, failure or loss; the end of the run if it was still training."""
    if entry.started_ms is None:
        return None
    if entry.ended is not None:
        return min(data.end_ms, data.ledger.corrected(entry.writer, entry.ended.time_ms))
    return min(data.end_ms, work.died_ms) if work.died_ms is not None else data.end_ms


def _best(work: TrialWork) -> float | None:
    """The highest accuracy of a completed epoch; one without evaluated images counts as 0."""
    return max((epoch.body.accuracy or 0.0 for epoch in work.epochs), default=None)


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
