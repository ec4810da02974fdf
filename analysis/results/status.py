"""The state of a run for those who watch it: the content of `aiperf status --format json`."""

from __future__ import annotations

import re
from operator import itemgetter
from typing import Literal

from aiperf.cli.quality import qualities_text
from aiperf.cli.units import count
from aiperf.facts import Measured
from aiperf.processes import tail
from aiperf.records.columns import moments_of
from aiperf.rules.score import error_of, regulated
from aiperf.run_directory.claim import SeenHolder, find_holder
from aiperf.run_directory.manifest import read_manifest
from aiperf.run_directory.paths import RunPaths
from aiperf.run_directory.snapshot import Snapshot, read_snapshot
from analysis.output.page.vocabulary import slowness
from analysis.output.tables import worst_first
from analysis.reading.run_data import RunData
from analysis.report.estimates import Part
from analysis.report.model import Report
from analysis.report.state import IN_PROGRESS, State, next_command, seconds_left
from analysis.report.workloads import WorkloadPart

WAITS = re.compile(r"waiting for (\d+ of \d+ replicas, each for .{1,300})")
LOG_TAIL_BYTES = 1 << 16


class ReplicaStatus(Part):
    """One replica and its latest trial."""

    replica: int
    """Number of the replica, from 0."""
    state: str
    """starting, working, lost, absent (never came); of a run that is over finished, interrupted."""
    phase: str | None
    """Latest phase: search, start, build, train, evaluate, checkpoint or idle."""
    trial: int | None
    round: int | None
    epochs: int | None
    """Completed epochs of the trial."""
    accuracy: float | None
    """Best top-1 accuracy of the trial."""
    operations: int
    """Operations of all its trials so far."""
    workload: str | None = None
    """The scientific workload of the trial."""
    quality: float | None = None
    """The first measure of its target, of the best epoch of the trial's model."""
    node: str | None = None
    """Name of its node; null if it is not known, as in a snapshot."""
    working_ops: float | None = None
    """Operations per second of its training and evaluation; null without any, and in a snapshot."""


class WorkloadStatus(Part):
    """One scientific workload."""

    workload: str
    measure: str | None
    """The first measure of its target; null, as its values, before a training has begun."""
    value: float | None
    """The best value of a model so far."""
    target: float | None
    higher: bool | None
    """True if a higher value is better."""
    models: int
    """Models that are to be trained."""
    reached: int
    """Number of models that reached the target."""

    @property
    def measured(self) -> Measured | None:
        """The quality next to the target; None before a training has begun."""
        if self.measure is None or self.target is None or self.higher is None:
            return None
        return Measured(workload=self.workload, measure=self.measure, value=self.value, target=self.target,
                        higher=self.higher)  # fmt: skip


class RunStatus(Part):
    """A run at this moment."""

    schema_version: int = 1
    source: Literal["records", "snapshot"] = "records"
    """snapshot: what the primary of a large run in progress has heard, a few seconds old."""
    name: str
    """Name of the run."""
    state: State
    """starting: waits for its replicas; running; silent: its primary on another node gives no sign
    of life; interrupted: can be resumed in the time that is left; ended: reached its deadline or
    completed its work; failed: over without that.
    """
    simulated: bool = False
    """True if nothing is trained: a rehearsal, or the simulated trainer."""
    ended: str | None
    """The recorded end: deadline, interrupted or no_replicas; null without one."""
    models: int | None = None
    """Models of scientific workloads that are to be trained; null in a run of AutoML."""
    reached: int | None = None
    """Number of models that reached their target."""
    workloads: tuple[WorkloadStatus, ...] = ()
    """Each scientific workload."""
    primary: str | None
    """The process that has the run, or had it when it died; null if none claims it."""
    elapsed_s: float
    """Seconds from the release of the replicas to now, to the end, or to the last record."""
    duration_s: float
    """Seconds that the run lasts as planned."""
    left_s: float | None
    """Seconds to the deadline from now on, at least 0; null before the release."""
    trials: int
    error: float
    """1 - best top-1 accuracy so far."""
    score_ops: float | None
    """Operations per second so far; of an ended run its score, null if it has none."""
    regulated_score_ops: float | None
    replicas: tuple[ReplicaStatus, ...]
    slow: tuple[str, ...] | None = None
    """Replicas that are slower than their like so far, with what differs, the slowest first; null
    if they were not compared, as in a snapshot.
    """
    waits_for: tuple[str, ...] = ()
    """Causes of a start that takes longer than 15 s, as the primary has last reported."""
    next: str
    """The command that follows: status, resume, or report."""


def models_text(status: RunStatus) -> str:
    """The models that reached their targets, and the best quality of each workload."""
    reached = f"{status.reached} of {count(status.models or 0, 'model')} reached the target"
    best = qualities_text(part.measured for part in status.workloads if part.measured is not None)
    return f"{reached}; best {best}" if best else reached


def run_status(data: RunData, report: Report, holder: SeenHolder | None, now_ms: int) -> RunStatus:
    """The status of a run by its report; `holder` is the primary that claims it."""
    state = report.state or "ended"
    return RunStatus(
        name=report.name,
        state=state,
        simulated=report.simulated,
        ended=None if data.ended == "unfinished" else data.ended,
        primary=str(holder) if holder is not None else None,
        elapsed_s=report.duration_s,
        duration_s=data.manifest.config.run.duration,
        left_s=seconds_left(data, now_ms),
        trials=len(data.ledger.trials),
        models=sum(part.instances for part in report.workloads) if report.is_science else None,
        reached=sum(part.reached for part in report.workloads) if report.is_science else None,
        workloads=tuple(map(_workload, report.workloads)),
        error=report.error,
        score_ops=report.score_ops,
        regulated_score_ops=report.regulated_score_ops,
        replicas=_replicas(data, report, state),
        slow=tuple(map(slowness, report.comparison.slow)) if report.comparison is not None else None,
        waits_for=_waits(data.paths) if state == "starting" else (),
        next=next_command(state, data.paths),
    )


def status_at_a_glance(paths: RunPaths, now_ms: int) -> RunStatus | None:
    """The status of a large run in progress, from the snapshot that its primary keeps.

    None without a recent one of a primary that lives: `run_status` reads the records. Nothing
    official is made of it.
    """
    holder, found = find_holder(paths.claims, now_ms), read_snapshot(paths, now_ms)
    if found is None or holder is None or not holder.alive or (holder.host, holder.pid) != (found.host, found.pid):
        return None
    error = 1.0
    if found.best_accuracy is not None:
        images = read_manifest(paths).config.dataset.validation_images
        error = error_of(round(found.best_accuracy * images), images)
    ops = found.operations / found.elapsed_s if found.elapsed_s > 0 else 0.0
    state: State = "running" if found.released else "starting"
    return RunStatus(
        source="snapshot",
        name=found.name,
        state=state,
        ended=None,
        primary=str(holder),
        elapsed_s=found.elapsed_s,
        duration_s=found.duration_s,
        left_s=max(0.0, found.duration_s - found.elapsed_s) if found.released else None,
        trials=found.trials,
        error=error,
        score_ops=ops,
        regulated_score_ops=regulated(ops, error),
        replicas=_rows(found),
        waits_for=_waits(paths) if state == "starting" else (),
        next=next_command(state, paths),
    )


def _waits(paths: RunPaths) -> tuple[str, ...]:
    """The primary's last words about what its start waits for, from the end of its log."""
    found: list[str] = []
    for line in reversed(tail(paths.primary_log, LOG_TAIL_BYTES).splitlines()):
        if match := WAITS.search(line):
            found.append(match[1])
        elif found:
            break
    return tuple(reversed(found))


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


def _rows(snapshot: Snapshot) -> tuple[ReplicaStatus, ...]:
    names = tuple(ReplicaStatus.model_fields)[:8]  # a snapshot has no more
    return tuple(ReplicaStatus(**dict(zip(names, row, strict=True))) for row in snapshot.replicas)


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
            )
        )
    return tuple(result)
