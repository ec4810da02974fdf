"""Time of each replica by phase: search, start, build, train, evaluate, checkpoint and idle."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from aiperf.history.ledger import ReplicaLedger
from analysis.reading.run_data import RunData


@dataclass(frozen=True, slots=True)
class Span:
    """A replica in one phase, in seconds after the run's start. `trial` is None between trials."""

    phase: str
    trial: int | None
    begin_s: float
    end_s: float


def spans(data: RunData, entry: ReplicaLedger) -> list[Span]:
    """All phases of a replica from the start of the run to its end or the replica's, without gaps.

    Before the first phase, and between a loss and the return, a replica is idle. Empty if it never
    came or the run never started.
    """
    start_ms = data.start_ms
    if entry.ready is None or start_ms is None:
        return []
    end_ms = min(data.end_ms, entry.lost.time_ms) if entry.lost else data.end_ms
    moments: list[tuple[int, str, int]] = [
        (data.ledger.corrected(writer, item.time_ms), item.body.phase, item.body.trial or 0)
        for writer, items in entry.phases.items()
        for item in items
    ]
    moments += [(loss.time_ms, "idle", 0) for loss in entry.losses]
    bounds = [(start_ms, "idle", 0), *sorted(moments), (end_ms, "idle", 0)]
    found = []
    for (begin_ms, phase, trial), (next_ms, _, _) in pairwise(bounds):
        begin, end = max(begin_ms, start_ms), min(next_ms, end_ms)
        if end > begin:
            found.append(Span(phase, trial or None, (begin - start_ms) / 1000, (end - start_ms) / 1000))
    return found


def phase_totals(found: list[Span]) -> dict[str, float]:
    """Seconds by phase."""
    totals: dict[str, float] = {}
    for span in found:
        totals[span.phase] = totals.get(span.phase, 0.0) + span.end_s - span.begin_s
    return totals


def busy_fraction(found: list[Span], end_s: float) -> float | None:
    """Training and evaluation as a fraction of the time from the first step to the run's end."""
    first_s = min((span.begin_s for span in found if span.phase == "train"), default=None)
    if first_s is None or end_s <= first_s:
        return None
    busy_s = sum(span.end_s - span.begin_s for span in found if span.phase in ("train", "evaluate"))
    return busy_s / (end_s - first_s)
