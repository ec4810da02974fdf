"""The status of a run by its report: the content of `aiperf status --format json`."""

from operator import itemgetter

from aiperf.records.columns import moments_of
from aiperf.run_directory.claim import SeenHolder
from aiperf.run_directory.state import IN_PROGRESS, OVER, State, next_command
from analysis.output.page.vocabulary import slowness
from analysis.reading.run_data import RunData
from analysis.report.model import Report
from analysis.report.phases import share_of_training, worst_first
from analysis.report.state import seconds_left
from analysis.report.workloads import WorkloadPart
from analysis.results.glance import ReplicaStatus, RunStatus, SlowedDevice, WorkloadStatus, waits_of


def run_status(data: RunData, report: Report, holder: SeenHolder | None, now_ms: int) -> RunStatus:
    """The status of a run by its report; `holder` is the primary that claims it."""
    state, left_s = report.state or "ended", seconds_left(data, now_ms)
    return RunStatus(
        name=report.name,
        state=state,
        simulated=report.simulated,
        status=report.status if state in OVER else None,
        ended=None if data.ended == "unfinished" else data.ended,
        primary=str(holder) if holder is not None else None,
        elapsed_s=report.duration_s,
        duration_s=data.manifest.config.run.duration,
        left_s=0.0 if state in OVER and left_s is not None else left_s,
        trials=len(data.ledger.trials),
        models=sum(part.instances for part in report.workloads) if report.is_science else None,
        reached=sum(part.reached for part in report.workloads) if report.is_science else None,
        workloads=tuple(map(_workload, report.workloads)),
        error=report.error,
        score_ops=report.score_ops,
        regulated_score_ops=report.regulated_score_ops,
        replicas=_replicas(data, report, state),
        slow=_slow(report),
        unhealthy=_unhealthy(report),
        losses=report.counts.replicas_lost if report.counts is not None else None,
        slowed=_slowed(report),
        waits_for=waits_of(data.paths) if state == "starting" else (),
        next=next_command(state, data.paths),
    )


def _slow(report: Report) -> tuple[str, ...] | None:
    """None if no replicas were compared: there are too few, or too few epochs."""
    part = report.comparison
    return tuple(map(slowness, part.slow)) if part is not None and part.compared else None


def _unhealthy(report: Report) -> int | None:
    """None if no sample says anything about health."""
    part = report.health
    return len({sign.node for sign in part.signs if sign.grave}) if part is not None and part.recorded else None


def _slowed(report: Report) -> tuple[SlowedDevice, ...]:
    signs = report.health.signs if report.health is not None else ()
    found = [each for each in signs if each.kind == "slowed" and each.device is not None]
    devices = [SlowedDevice(node=each.node, device=each.device or "", samples=each.samples) for each in found]
    return tuple(sorted(devices, key=lambda each: (each.node, each.device)))


def _workload(part: WorkloadPart) -> WorkloadStatus:
    values = [model.quality for model in part.models if model.quality is not None]
    return WorkloadStatus(
        workload=part.workload,
        measure=part.measure,
        value=(max if part.higher else min)(values, default=None),
        target=part.target,
        higher=part.higher,
        models=part.instances,
        reached=part.reached,
    )


def _replicas(data: RunData, report: Report, state: State) -> tuple[ReplicaStatus, ...]:
    latest = {trial.replica: trial for trial in report.trials}
    models = [(part, model, own) for part in report.workloads for model in part.models for own in model.trials]
    of_models = {own.replica: (part, model, own) for part, model, own in sorted(models, key=lambda each: each[2].id)}
    result = []
    for replica in worst_first(report.replica_details):
        entry = data.ledger.replica(replica.replica)
        moments = [moment for _, phases in sorted(entry.phases.items()) for moment in moments_of(phases)]
        phase = max(reversed(moments), key=itemgetter(0), default=None)  # of one millisecond, the last
        trial = latest.get(replica.replica)
        part, model, own = of_models.get(replica.replica, (None, None, None))
        current = trial or own
        over = replica.state == "working" and state not in IN_PROGRESS
        result.append(
            ReplicaStatus(
                replica=replica.replica,
                state="interrupted" if over else replica.state,
                phase=phase[1] if phase is not None else None,
                trial=current.id if current is not None else None,
                round=trial.round if trial is not None else None,
                epochs=current.epochs if current is not None else None,
                accuracy=trial.best_accuracy if trial is not None else None,
                operations=replica.operations,
                workload=part.workload if part is not None else None,
                quality=model.quality if model is not None else None,
                node=replica.node,
                working_ops=replica.working_ops,
                input_share=share_of_training([replica], "input_s"),
                all_reduce_share=share_of_training([replica], "exchange_s"),
                servers_share=share_of_training([replica], "servers_s"),
            )
        )
    return tuple(result)
