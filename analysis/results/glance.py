"""The status of a run in a few words, and without its records that of a large one or of one that is
over.

`aiperf status` of thousands of replicas is asked every few seconds: it imports nothing that reads
records or makes reports.
"""

import contextlib
import re
from typing import Literal

from pydantic import BaseModel, ConfigDict

from aiperf import __version__
from aiperf.cli.quality import qualities_text
from aiperf.cli.units import count, number
from aiperf.errors import RunDirectoryError
from aiperf.facts import Measured
from aiperf.files import atomic_file
from aiperf.processes import tail
from aiperf.rules.score import error_of, regulated
from aiperf.run_directory.changes import Seen, look_at
from aiperf.run_directory.claim import SeenHolder, find_holder
from aiperf.run_directory.paths import RunPaths
from aiperf.run_directory.snapshot import SNAPSHOT_LIMITS, Snapshot, read_snapshot
from aiperf.run_directory.state import IN_PROGRESS, OVER, State, next_command
from aiperf.untrusted.reading import read_outside
from analysis.reading.nodes import read_system
from analysis.report.estimates import Part

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
    """Name of its node; null if it is not known."""
    working_ops: float | None = None
    """Operations per second of its training and evaluation; null without any, and in a snapshot."""
    input_share: float | None = None
    """Share of its training in which it waited for images; null if it was not measured, and in a
    snapshot.
    """
    all_reduce_share: float | None = None
    """Share of its training in all-reduce, waits for slower ranks included; null if it was not
    measured, and in a snapshot.
    """
    servers_share: float | None = None
    """Share of its training in which it waited for parameter servers; null without hybrid
    trainings, and in a snapshot.
    """


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
        return Measured(
            workload=self.workload, measure=self.measure, value=self.value, target=self.target, higher=self.higher
        )


class SlowedDevice(Part):
    """An accelerator that its clock events slowed down."""

    node: str
    """Name of its node."""
    device: str
    """Its UUID, else its number."""
    samples: int
    """Samples so far in which it was slowed down."""


class RunStatus(Part):
    """A run at this moment."""

    schema_version: int = 1
    source: Literal["records", "snapshot", "report"] = "records"
    """snapshot: what the primary of a large run in progress has heard, a few seconds old. report:
    what the last report found in the records, which have not changed since.
    """
    name: str
    """Name of the run."""
    state: State
    """starting: waits for its replicas; running; silent: its primary on another node gives no sign
    of life; interrupted: can be resumed in the time that is left; ended: reached its deadline or
    completed its work; failed: over without that.
    """
    simulated: bool = False
    """True if nothing is trained: a rehearsal, or the simulated trainer."""
    status: str | None = None
    """That of report.json, of a run that is over: PASSED, UNOFFICIAL, FAILED or SIMULATED."""
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
    """Seconds to the deadline from now on, 0 if the run is over; null before the release."""
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
    unhealthy: int | None = None
    """Nodes with signs that no healthy node has so far; null if they were not looked at, as in a
    snapshot.
    """
    losses: int | None = None
    """Replicas that were lost or never came so far, one that is lost twice as two; null in a
    snapshot.
    """
    slowed: tuple[SlowedDevice, ...] = ()
    """Accelerators that were slowed down for their heat or power supply so far, by node; none in a
    snapshot.
    """
    waits_for: tuple[str, ...] = ()
    """Causes of a start that takes longer than 15 s, as the primary has last reported."""
    next: str
    """The command that follows: status, resume, or report."""


def error_text(status: RunStatus) -> str:
    """The error so far; none before the first epoch."""
    return "no epoch yet" if status.error == 1.0 and status.state in IN_PROGRESS else f"error {number(status.error)}"


def models_text(status: RunStatus) -> str:
    """The models that reached their targets, and the best quality of each workload."""
    reached = f"{status.reached} of {count(status.models or 0, 'model')} reached the target"
    best = qualities_text(part.measured for part in status.workloads if part.measured is not None)
    return f"{reached}; best {best}" if best else reached


class KeptStatus(BaseModel):
    """The status of a run that is over, and the files that it was made from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: str = __version__
    """Version that computed the status: another one may count in another way."""
    seen: Seen
    status: RunStatus


def status_at_a_glance(paths: RunPaths, now_ms: int) -> RunStatus | None:
    """The status without the records: of a large run in progress, and of one that is over.

    The first comes from the snapshot that its primary keeps, the other from what its last report
    found. None without a recent snapshot of a primary that lives, and without a report of the files
    as they are: `run_status` reads the records. Nothing official is made of it.
    """
    holder, found = find_holder(paths.claims, now_ms), read_snapshot(paths, now_ms)
    if found is None or holder is None or not holder.alive or (holder.host, holder.pid) != (found.host, found.pid):
        return _kept(paths, holder)
    error, images = 1.0, found.validation_images
    if found.best_accuracy is not None:
        error = error_of(round(found.best_accuracy * images), images)
    ops = found.operations / found.elapsed_s if found.elapsed_s > 0 else 0.0
    state: State = "running" if found.released else "starting"
    return RunStatus(
        source="snapshot",
        name=found.name,
        state=state,
        simulated=found.simulated,
        ended=None,
        primary=str(holder),
        elapsed_s=found.elapsed_s,
        duration_s=found.duration_s,
        left_s=max(0.0, found.duration_s - found.elapsed_s) if found.released else None,
        trials=found.trials,
        error=error,
        score_ops=ops,
        regulated_score_ops=regulated(ops, error),
        replicas=_rows(found, paths),
        waits_for=waits_of(paths) if state == "starting" else (),
        next=next_command(state, paths),
    )


def keep_status(paths: RunPaths, status: RunStatus, seen: Seen) -> None:
    """Keep the status of a run that is over; `seen`: its files, as they were before they were read.

    A file system that refuses costs the file, and nothing else.
    """
    kept = KeptStatus(seen=seen, status=status.model_copy(update={"source": "report", "primary": None, "next": ""}))
    with contextlib.suppress(OSError), atomic_file(paths.kept_status) as stream:
        stream.write(kept.model_dump_json().encode())


def _kept(paths: RunPaths, holder: SeenHolder | None) -> RunStatus | None:
    """The status that the last report kept, if the files are as they were."""
    if not paths.kept_status.exists():
        return None
    try:
        kept = read_outside(paths.kept_status, KeptStatus.model_validate_json, SNAPSHOT_LIMITS)
        if kept.version != __version__ or kept.status.state not in OVER or kept.seen != look_at(paths):
            return None
    except (RunDirectoryError, OSError):
        return None
    next_one = next_command(kept.status.state, paths)
    return kept.status.model_copy(update={"primary": str(holder) if holder is not None else None, "next": next_one})


def waits_of(paths: RunPaths) -> tuple[str, ...]:
    """The primary's last words about what its start waits for, from the end of its log."""
    found: list[str] = []
    for line in reversed(tail(paths.primary_log, LOG_TAIL_BYTES).splitlines()):
        if match := WAITS.search(line):
            found.append(match[1])
        elif found:
            break
    return tuple(reversed(found))


def _rows(snapshot: Snapshot, paths: RunPaths) -> tuple[ReplicaStatus, ...]:
    """The replicas: those that are lost first, then those that have done least."""
    hosts = {replica: facts.host for replica, facts in read_system(paths).items()}
    names = tuple(ReplicaStatus.model_fields)[:8]  # a snapshot has no more
    found = [
        ReplicaStatus(**dict(zip(names, row, strict=True)), node=hosts.get(str(row[0]))) for row in snapshot.replicas
    ]
    return tuple(sorted(found, key=lambda each: (each.state != "lost", each.operations, each.replica)))
