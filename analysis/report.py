"""The report: score, timeline, trials and violations of a run, from its records alone."""

from __future__ import annotations

from itertools import pairwise

from aiperf.clock import format_utc
from aiperf.ledger import ReplicaLedger, TrialLedger
from aiperf.operations import Operations
from aiperf.rules import RunFacts, status, violations
from aiperf.score import (
    EpochWork,
    TrialWork,
    best_error,
    operations_per_second,
    regulated,
    timeline,
    work_done,
)
from analysis.hyperparameters import by_value
from analysis.model import ReplicaPart, Report, TimelinePart, TrialPart, ViolationPart
from analysis.timeline import RunData

_ONE_PER_TRAINED = Operations(0, 1)
_ONE_PER_IMAGE = Operations(1, 0)


def build_report(data: RunData) -> Report:
    """Compute the report of a run as it is in the records."""
    counted = _within_run(data)
    trials = tuple(_trial(data, entry, counted[entry.trial]) for entry in _in_order(data))
    work = [counted[entry.trial] for entry in _in_order(data)]
    total = work_done(work, data.end_ms)
    error = best_error(work, data.end_ms)
    score = operations_per_second(total, data.duration_ms)
    replicas = tuple(_replica(data, entry, trials) for _, entry in sorted(data.ledger.replicas.items()))
    facts = _facts(data, trials, error)
    found = violations(facts)
    return Report(
        name=data.manifest.config.run.name,
        status=status(found),
        violations=tuple(ViolationPart(rule=v.rule, found=v.found, required=v.required) for v in found),
        ended=data.ended,
        started=format_utc(data.start_ms) if data.start_ms is not None else None,
        score_ops=score,
        regulated_score_ops=regulated(score, error),
        error=error,
        duration_s=data.duration_ms / 1000,
        replicas=data.manifest.config.run.replicas,
        accelerators=sum(replica.accelerators for replica in replicas),
        images_trained=facts.images_trained,
        images_evaluated=sum(trial.images_evaluated for trial in trials),
        operations_total=total,
        timeline=_timeline(data, work),
        trials=trials,
        replica_details=replicas,
        hyperparameters=by_value(trials),
        damages=data.damages,
        unfinished_lines=data.unfinished_lines,
    )


def _timeline(data: RunData, work: list[TrialWork]) -> tuple[TimelinePart, ...]:
    if data.start_ms is None:
        return ()
    return tuple(
        TimelinePart(t_s=point.t_ms / 1000, ops=point.ops, error=point.error, regulated_ops=point.regulated_ops)
        for point in timeline(work, data.start_ms, data.end_ms)
    )


def _in_order(data: RunData) -> list[TrialLedger]:
    return [data.ledger.trials[trial] for trial in sorted(data.ledger.trials)]


def _within_run(data: RunData) -> dict[int, TrialWork]:
    """The work of every trial, less what lies outside the run: before the release or after the end."""
    start_ms = data.start_ms if data.start_ms is not None else data.end_ms
    result = {}
    for entry in _in_order(data):
        work = data.work_of(entry)
        result[entry.trial] = TrialWork(
            cost=work.cost,
            epochs=tuple(epoch for epoch in work.epochs if start_ms <= epoch.time_ms <= data.end_ms),
            progress=tuple(report for report in work.progress if start_ms <= report.time_ms <= data.end_ms),
            died_ms=work.died_ms,
        )
    return result


def _trial(data: RunData, entry: TrialLedger, work: TrialWork) -> TrialPart:
    state, reason = _state(data, entry)
    issued, started = entry.issued, entry.started
    operations = work_done([work], data.end_ms)
    if_alive = work_done([TrialWork(work.cost, work.epochs, work.progress)], data.end_ms)
    trained, evaluated = _images(work, data.end_ms)
    return TrialPart(
        id=entry.trial,
        replica=started.replica if started else issued.replica if issued else -1,
        round=started.round if started else issued.round if issued else 0,
        architecture=started.architecture if started else None,
        parent=started.parent if started else None,
        morphs=started.morphs if started else (),
        weights_from=started.weights_from if started else None,
        point=started.point if started else issued.point if issued else 0,
        base=started.base if started else issued.base if issued else None,
        hyperparameters=started.hyperparameters if started else {},
        epochs=len(work.epochs),
        best_accuracy=max(map(_accuracy, work.epochs), default=None),
        predicted_accuracy=entry.ended[1].predicted_accuracy if entry.ended else None,
        images_trained=trained,
        images_evaluated=evaluated,
        operations=operations,
        lost_operations=if_alive - operations,
        precision=started.precision if started else None,
        state=state,
        failure_reason=reason,
    )


def _accuracy(epoch: EpochWork) -> float:
    return epoch.correct / epoch.images_evaluated if epoch.images_evaluated else 0.0


def _images(work: TrialWork, end_ms: int) -> tuple[int, int]:
    """Images trained and evaluated that count, by pricing the one at 1 and the other at 0."""
    from_training = TrialWork(_ONE_PER_TRAINED, work.epochs, work.progress, work.died_ms)
    from_evaluation = TrialWork(_ONE_PER_IMAGE, work.epochs, work.progress, work.died_ms)
    trained = work_done([from_training], end_ms)
    return trained, work_done([from_evaluation], end_ms) - trained


def _state(data: RunData, entry: TrialLedger) -> tuple[str, str | None]:
    if entry.failed is not None:
        body = entry.failed[1]
        return "failed", f"{body.kind}: {body.reason}"
    replica = entry.started.replica if entry.started else entry.issued.replica if entry.issued else -1
    losses = sorted(data.ledger.replica(replica).losses, key=lambda item: item[0]) if replica >= 0 else []
    died_ms = data.ledger.died_ms(entry)
    if died_ms is not None:
        return "lost", next((body.reason for ms, body in losses if ms == died_ms), "its primary died or was stopped")
    if entry.ended is not None:
        return entry.ended[1].reason, None
    if entry.started is None and losses:
        return "lost", losses[-1][1].reason
    return ("running" if data.ended == "unfinished" else "stopped"), None


def _replica(data: RunData, entry: ReplicaLedger, trials: tuple[TrialPart, ...]) -> ReplicaPart:
    own = [trial for trial in trials if trial.replica == entry.replica]
    state = "lost" if entry.lost else "working" if data.ended == "unfinished" else "finished"
    return ReplicaPart(
        replica=entry.replica,
        state=state,
        reason=entry.lost[1].reason if entry.lost else None,
        accelerators=entry.ready.accelerators if entry.ready else 0,
        trials=len(own),
        operations=sum(trial.operations for trial in own),
        busy_fraction=_busy_fraction(data, entry),
        phases_s=_phases(data, entry),
    )


def _facts(data: RunData, trials: tuple[TrialPart, ...], error: float) -> RunFacts:
    return RunFacts(
        config=data.manifest.config,
        ended=data.ended,
        duration_s=data.duration_ms / 1000,
        error=error,
        images_trained=sum(trial.images_trained for trial in trials),
        precisions=tuple(sorted({trial.precision for trial in trials if trial.precision is not None})),
        damages=data.damages,
        parts=data.ledger.parts,
    )


def _phases(data: RunData, entry: ReplicaLedger) -> dict[str, float]:
    """Seconds by phase between start and end of the run; time before the first phase is idle."""
    return {} if data.start_ms is None else _spans(data, entry, data.start_ms)


def _busy_fraction(data: RunData, entry: ReplicaLedger) -> float | None:
    """Training and evaluation as a fraction of the time from the first training step to the end of the run."""
    if entry.ready is None:
        return None
    trained = [data.ledger.corrected(writer, ms) for writer, ms, body in entry.phases if body.phase == "train"]
    if not trained or data.end_ms <= min(trained):
        return None
    spans = _spans(data, entry, min(trained))
    return (spans.get("train", 0.0) + spans.get("evaluate", 0.0)) * 1000 / (data.end_ms - min(trained))


def _spans(data: RunData, entry: ReplicaLedger, start_ms: int) -> dict[str, float]:
    """Seconds by phase from a moment to the end of the run or of the replica."""
    if entry.ready is None:
        return {}
    end_ms = min(data.end_ms, entry.lost[0]) if entry.lost else data.end_ms
    moments = sorted((data.ledger.corrected(writer, ms), body.phase) for writer, ms, body in entry.phases)
    # Between a loss and the return there is no phase.
    moments = sorted([*moments, *((ms, "idle") for ms, _ in entry.losses)])
    bounds = [(start_ms, "idle"), *moments, (end_ms, "idle")]
    totals: dict[str, float] = {}
    for (begin_ms, phase), (next_ms, _) in pairwise(bounds):
        span_ms = min(next_ms, end_ms) - max(begin_ms, start_ms)
        if span_ms > 0:
            totals[phase] = totals.get(phase, 0.0) + span_ms / 1000
    return totals
