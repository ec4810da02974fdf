"""Time of each replica by phase: search, start, build, train, evaluate, checkpoint, storage, idle
and down.

A replica is down while no process of it lives: before it came, after its loss, and between the end
of a run and its resumption. The phases of a replica always sum to the duration of the run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import Any

import numpy as np

from aiperf.history.entries import ReplicaLedger
from analysis.reading.run_data import RunData

DOWN = "down"

INTERVALS = 100
"""Parts of a run in which the phases of all replicas are shared out."""

WORST = 10
"""Replicas that are shown one by one."""

Moment = tuple[int, str, int]
"""Time, phase, trial (0: none)."""


@dataclass(frozen=True, slots=True)
class Span:
    """A replica in one phase, in seconds after the run's start. `trial` is None between trials."""

    phase: str
    trial: int | None
    begin_s: float
    end_s: float


def spans(data: RunData, entry: ReplicaLedger) -> list[Span]:
    """All phases of a replica from the start of the run to its end, without gaps.

    A replica that is there and has not begun a phase is idle. Empty if the run never started.
    """
    start_ms, end_ms = data.start_ms, data.end_ms
    if start_ms is None:
        return []
    lives = sorted((_life(data, entry, writer) for writer in _writers(entry)), key=itemgetter(0))
    # At equal times, one life ends before the next begins.
    moments = sorted((moment for life in lives for moment in life), key=itemgetter(0))
    bounds = [(start_ms, DOWN, 0), *moments, (end_ms, DOWN, 0)]
    found: list[Span] = []
    for (begin_ms, phase, trial), (next_ms, _, _) in pairwise(bounds):
        begin = begin_ms if begin_ms > start_ms else start_ms
        end = next_ms if next_ms < end_ms else end_ms
        if end > begin:
            found.append(Span(phase, trial or None, (begin - start_ms) / 1000, (end - start_ms) / 1000))
    return found


def _writers(entry: ReplicaLedger) -> list[str]:
    """The writers of a replica: a new one each time that it comes back."""
    return sorted({arrival.body.writer for arrival in entry.arrivals} | entry.writers)


def _life(data: RunData, entry: ReplicaLedger, writer: str) -> list[Moment]:
    """The phases of one writer, from its arrival to its death, in order."""
    offset_ms = data.ledger.offsets_ms.get(writer, 0)
    own: list[Moment] = sorted((time_ms - offset_ms, phase, trial or 0)
                               for time_ms, phase, trial in entry.moments(writer))  # fmt: skip
    arrivals = [arrival.time_ms for arrival in entry.arrivals if arrival.body.writer == writer]
    # A writer that no arrival names is there from its first phase on.
    arrived_ms = min(arrivals or [moment[0] for moment in own])
    died_ms = _death(data, entry, writer, arrived_ms)
    lived: list[Moment] = [(arrived_ms, "idle", 0)]
    lived += [moment for moment in own if arrived_ms <= moment[0] and (died_ms is None or moment[0] < died_ms)]
    return lived if died_ms is None else [*lived, (max(arrived_ms, died_ms), DOWN, 0)]


def _death(data: RunData, entry: ReplicaLedger, writer: str, arrived_ms: int) -> int | None:
    """When a writer was gone; None if it lived to the end of the run.

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


def phase_totals(found: list[Span]) -> dict[str, float]:
    """Seconds by phase."""
    totals: dict[str, float] = {}
    for span in found:
        totals[span.phase] = totals.get(span.phase, 0.0) + span.end_s - span.begin_s
    return totals


@dataclass(frozen=True, slots=True)
class PhaseSummary:
    """What the charts show of all replicas' phases: they may be a million."""

    seconds: dict[str, Any]
    """Of all replicas by phase, in INTERVALS equal parts of the run (an array)."""
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


def all_spans(data: RunData) -> dict[int, list[Span]]:
    """The phases of every replica. Their summary is kept for the charts."""
    found = {number: spans(data, entry) for number, entry in sorted(data.ledger.replicas.items())}
    data.computed["phases"] = _summary(found, data.duration_ms / 1000)
    return found


def phase_summary(data: RunData) -> PhaseSummary:
    """The summary of all phases, which a report that was built has computed already."""
    if "phases" not in data.computed:
        all_spans(data)
    summary: PhaseSummary = data.computed["phases"]
    return summary


def _summary(found: dict[int, list[Span]], end_s: float) -> PhaseSummary:
    edges = np.linspace(0, end_s, INTERVALS + 1)
    seconds = dict[str, Any]()
    for own in found.values():
        by_phase: dict[str, list[tuple[float, float]]] = {}
        for span in own:
            by_phase.setdefault(span.phase, []).append((span.begin_s, span.end_s))
        for phase, bounds in by_phase.items():
            seconds[phase] = seconds.get(phase, 0.0) + _covered(np.array(bounds), edges)
    waited = {number: _waited_s(own) for number, own in found.items()}
    worst = sorted(found, key=lambda number: (-waited[number], number))[:WORST]
    return PhaseSummary(seconds, {number: found[number] for number in worst}, len(found) if seconds else 0)


def _waited_s(own: list[Span]) -> float:
    return sum(span.end_s - span.begin_s for span in own if span.phase in ("idle", "storage", "down"))


def _covered(bounds: Any, edges: Any) -> Any:
    """Seconds between edges that disjoint spans cover."""
    lengths = np.column_stack([np.zeros(len(bounds)), bounds[:, 1] - bounds[:, 0]])
    return np.diff(np.interp(edges, bounds.ravel(), np.cumsum(lengths.ravel())))


def busy_fraction(found: list[Span], end_s: float) -> float | None:
    """Training and evaluation as a fraction of the time from the first step to the run's end."""
    first_s = min((span.begin_s for span in found if span.phase == "train"), default=None)
    if first_s is None or end_s <= first_s:
        return None
    busy_s = sum(span.end_s - span.begin_s for span in found if span.phase in ("train", "evaluate"))
    return busy_s / (end_s - first_s)
