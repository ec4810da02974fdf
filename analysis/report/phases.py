"""Time of each replica by phase: search, start, build, train, evaluate, checkpoint, storage, idle
and down.

A replica is down while no process of it lives: before it came, after its loss, and between the end
of a run and its resumption. The phases of a replica always sum to the duration of the run.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from aiperf.records.entries import ReplicaLedger
from analysis.reading.run_data import RunData
from analysis.report.intervals import DOWN, PhaseStarts, Span, Spans, code, joined, moments_of
from analysis.report.model import ReplicaPart

INTERVALS = 100
"""Parts of a run in which the phases of all replicas are shared out."""

WORST = 10
"""Replicas that are shown one by one."""


Wait = Literal["input_s", "exchange_s", "servers_s"]
"""Field of a replica with the seconds of its training that were no computing."""

WAITS: Mapping[Wait, str] = {"input_s": "input", "exchange_s": "all-reduce", "servers_s": "servers"}
"""Their headings."""


def share_of_training(replicas: Iterable[ReplicaPart], name: Wait) -> float | None:
    """The part of the training of all replicas that was spent so; None if none has measured it."""
    known = [
        (spent_s, part.phases_s.get("train", 0.0)) for part in replicas if (spent_s := getattr(part, name)) is not None
    ]
    trained_s = sum(train_s for _, train_s in known)
    return sum(min(spent_s, train_s) for spent_s, train_s in known) / trained_s if trained_s > 0 else None


def measured_waits(replicas: Sequence[ReplicaPart]) -> list[Wait]:
    """Those of `WAITS` that any of these replicas has measured."""
    return [name for name in WAITS if any(getattr(part, name) is not None for part in replicas)]


def worst_first(replicas: Iterable[ReplicaPart]) -> list[ReplicaPart]:
    """Replicas that are lost or never came, then the slowest by their rate of training."""

    def key(part: ReplicaPart) -> tuple[bool, float, int]:
        return part.state not in ("lost", "absent"), part.working_ops or 0.0, part.replica

    return sorted(replicas, key=key)


def spans(data: RunData, entry: ReplicaLedger) -> Spans:
    """All phases of a replica from the start of the run to its end, without gaps.

    A replica that is there and has not begun a phase is idle. Empty if the run never started.
    """
    start_ms, end_ms = data.start_ms, data.end_ms
    if start_ms is None:
        return Spans.between(PhaseStarts.of([]), 0, 0)
    lives = sorted((_life(data, entry, writer) for writer in _writers(entry)), key=lambda life: int(life.times_ms[0]))
    every = joined([PhaseStarts.of([]), *lives])
    # At equal times, one life ends before the next begins.
    moments = every.only(np.argsort(every.times_ms, kind="stable"))
    # It is down until its first life begins; the moment at the end closes the last span.
    begin, end = (PhaseStarts.of([(time_ms, code(DOWN), -1)]) for time_ms in (start_ms, end_ms))
    return Spans.between(joined([begin, moments, end]), start_ms, end_ms)


def _writers(entry: ReplicaLedger) -> list[str]:
    """The writers of a replica: a new one each time that it comes back."""
    return sorted({arrival.body.writer for arrival in entry.arrivals} | {*entry.phases})


def _life(data: RunData, entry: ReplicaLedger, writer: str) -> PhaseStarts:
    """The phases of one writer, from its arrival to its death, in order."""
    own = moments_of(entry, writer, data.ledger.offsets_ms.get(writer, 0))
    arrivals = [arrival.time_ms for arrival in entry.arrivals if arrival.body.writer == writer]
    # A writer that no arrival names is there from its first phase on.
    arrived_ms = min(arrivals) if arrivals else int(own.times_ms[0])
    died_ms = _death(data, entry, writer, arrived_ms)
    lived = arrived_ms <= own.times_ms
    if died_ms is not None:
        lived &= own.times_ms < died_ms
    life = [PhaseStarts.of([(arrived_ms, code("idle"), -1)]), own.only(lived)]
    if died_ms is not None:
        life.append(PhaseStarts.of([(max(arrived_ms, died_ms), code(DOWN), -1)]))
    return joined(life)


def _death(data: RunData, entry: ReplicaLedger, writer: str, arrived_ms: int) -> int | None:
    """Find when a writer was gone; None if it lived to the end of the run.

    The primary records a loss and an end. It cannot record its own death: its replicas died with
    it, some time between their last records and the resumption.
    """
    ledger = data.ledger
    moments = [loss.time_ms for loss in entry.losses if loss.time_ms >= arrived_ms]
    moments += [end.body.end_ms for end in ledger.ends if end.time_ms >= arrived_ms]
    moments += [other.time_ms for other in entry.arrivals if other.body.writer != writer and other.time_ms > arrived_ms]
    resumed_ms = min((item.time_ms for item in ledger.resumptions if item.time_ms >= arrived_ms), default=None)
    if resumed_ms is not None:
        last_ms = ledger.last_of_writer_ms.get(writer)
        moments.append(min(resumed_ms, ledger.corrected(writer, last_ms)) if last_ms is not None else arrived_ms)
    return min(moments, default=None)


def replica_numbers(data: RunData) -> list[int]:
    """Every replica that the configuration asks for or a record names, whether it came or not."""
    return sorted({*range(data.manifest.config.run.replicas), *data.ledger.replicas})


def entry_of(data: RunData, number: int) -> ReplicaLedger:
    """The records of a replica; none of one that no record names."""
    return data.ledger.replicas.get(number) or ReplicaLedger(number)


def phase_totals(found: Spans) -> dict[str, float]:
    """Seconds by phase."""
    return {phase: own.total_s() for phase, own in found.by_phase()}


@dataclass(frozen=True, slots=True)
class PhaseSummary:
    """Summary of all replicas' phases for the charts: there may be a million phases."""

    seconds: dict[str, Any]
    """Seconds of all replicas by phase, in INTERVALS equal parts of the run (an array)."""
    worst: dict[int, list[Span]]
    """The WORST replicas that waited longest, the first of them the longest."""
    replicas: int
    """Replicas with any phase."""

    def shares(self, phases: Iterable[str]) -> dict[str, Any]:
        """Share of each phase in percent of the replicas' time, in equal parts of the run.

        Phases are in the given order; those that never occurred are left out.
        """
        total = sum(self.seconds.values())
        return {phase: 100 * self.seconds[phase] / total for phase in phases if phase in self.seconds}


def all_spans(data: RunData) -> dict[int, Spans]:
    """The phases of every replica. Their summary is kept for the charts."""
    found = {number: spans(data, entry_of(data, number)) for number in replica_numbers(data)}
    data.computed["phases"] = _summary(found, data.duration_ms / 1000)
    return found


def phase_summary(data: RunData) -> PhaseSummary:
    """The summary of all phases, which a report that was built has computed already."""
    if "phases" not in data.computed:
        all_spans(data)
    summary: PhaseSummary = data.computed["phases"]
    return summary


def _summary(found: dict[int, Spans], end_s: float) -> PhaseSummary:
    edges = np.linspace(0, end_s, INTERVALS + 1)
    seconds = dict[str, Any]()
    for replica in found.values():
        for phase, own in replica.by_phase():
            bounds = np.column_stack([own.begins_s, own.ends_s])
            seconds[phase] = seconds.get(phase, 0.0) + _covered(bounds, edges)
    waited = {number: sum(own.of("idle", "storage", "down").lengths_s()) for number, own in found.items()}
    worst = sorted(found, key=lambda number: (-waited[number], number))[:WORST]
    return PhaseSummary(seconds, {number: list(found[number]) for number in worst}, len(found) if seconds else 0)


def _covered(bounds: Any, edges: Any) -> Any:
    """Seconds between edges that disjoint spans cover."""
    lengths = np.column_stack([np.zeros(len(bounds)), bounds[:, 1] - bounds[:, 0]])
    # The time that spans cover up to a moment is piecewise linear, and constant between spans.
    return np.diff(np.interp(edges, bounds.ravel(), np.cumsum(lengths.ravel())))


def busy_fraction(found: Spans, end_s: float) -> float | None:
    """Training and evaluation as a fraction of the time from the first step to the run's end."""
    training = found.of("train").begins_s
    first_s = float(training.min()) if len(training) else None
    if first_s is None or end_s <= first_s:
        return None
    return sum(found.of("train", "evaluate").lengths_s()) / (end_s - first_s)
