"""Goodput: accelerator hours that did work, and those that were lost, by cause and node.

The phases of a replica sum to the duration of the run (`analysis.report.phases`). Training and
evaluation are productive if their work counts and was not done before; everything else is lost.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from statistics import median

import numpy as np
from numpy.typing import NDArray

from aiperf.records.entries import TrialLedger, when
from aiperf.records.ledger import Ledger
from aiperf.records.lineage import resumed_trial, trial_and_earlier
from analysis.reading.run_data import RunData
from analysis.report.estimates import GoodputPart, LostPart, NodeHoursPart
from analysis.report.intervals import Spans, code
from analysis.report.model import ReplicaPart
from analysis.report.phases import entry_of
from analysis.report.rates.work_intervals import WorkIntervals

PRODUCTIVE, LOST, REPEATED, UNREPORTED = "productive", "lost", "repeated", "unreported"

Seconds = NDArray[np.float64]

HOUR_S = 3600.0


@dataclass(frozen=True, eq=False)
class Windows:
    """The time of each trial's work that counts, in seconds after the start of the run.

    Rows are trials in order: id, beginning, end of the epochs that repeat earlier ones, and end of
    all; then marks of those that died.
    """

    trials: NDArray[np.int64]
    bounds: Seconds
    died: NDArray[np.bool_]


def windows_of(data: RunData, work: WorkIntervals) -> Windows:
    """The windows of all trials that a record began: those without work have one of no length."""
    ledger, start_ms = data.ledger, data.start_ms or 0
    rows, every = dict(work.rows()), work.every
    trials = sorted(number for number, entry in ledger.trials.items() if entry.begun is not None)
    bounds = np.zeros((len(trials), 3))
    for place, number in enumerate(trials):
        own = rows.get(number)
        if own is None:
            continue
        begins, ends = every.begins_ms[own], every.ends_ms[own]
        repeated = _repeated(ledger, ledger.trials[number])
        # A resumed training begins where its checkpoint was written, so what it repeats comes
        # first.
        last = int(ends[repeated - 1]) if 0 < repeated <= len(ends) else int(begins[0])
        bounds[place] = (np.array([begins[0], last, ends[-1]]) - start_ms) / 1000
    died = [ledger.work_died_ms(ledger.trials[number]) is not None for number in trials]
    return Windows(np.array(trials, np.int64), bounds, np.array(died, np.bool_))


def _repeated(ledger: Ledger, trial: TrialLedger) -> int:
    """Number of epochs of a trial that the trainings it resumes had completed before."""
    done = set[int]()
    for number in trial_and_earlier(resumed_trial(ledger, trial.trial), partial(resumed_trial, ledger)):
        if (entry := ledger.trials.get(number)) is not None:
            done.update(entry.epochs)
    return sum(epoch in done for epoch in trial.epochs)


def seconds_of(spans: Spans, windows: Windows) -> dict[str, float]:
    """Productive and lost seconds of a replica by cause; they sum to its spans."""
    found = {phase: own.total_s() for phase, own in spans.by_phase() if phase not in ("train", "evaluate")}
    working = spans.only(np.isin(spans.phases, [code("train"), code("evaluate")]))
    if not len(working) or not len(windows.trials):
        return found | ({UNREPORTED: working.total_s()} if len(working) else {})
    # A trial without a window gets the place of another one: `known` leaves it out again.
    places = np.minimum(np.searchsorted(windows.trials, working.trials), len(windows.trials) - 1)
    known = windows.trials[places] == working.trials
    begin, again, end = np.where(known[:, None], windows.bounds[places], 0.0).T
    lengths = working.ends_s - working.begins_s
    repeated = _overlap(working, begin, again)
    productive = _overlap(working, again, end)
    rest, died = lengths - repeated - productive, known & windows.died[places]
    parts = {PRODUCTIVE: productive, REPEATED: repeated, LOST: rest[died], UNREPORTED: rest[~died]}
    found.update({name: float(seconds.sum()) for name, seconds in parts.items() if len(seconds)})
    return {name: seconds for name, seconds in found.items() if seconds > 0}


def _overlap(spans: Spans, begins: Seconds, ends: Seconds) -> Seconds:
    inside = np.minimum(spans.ends_s, ends) - np.maximum(spans.begins_s, begins)
    return np.asarray(np.maximum(inside, 0.0), np.float64)


def goodput_part(
    data: RunData, phases: Mapping[int, Spans], windows: Windows, replicas: Sequence[ReplicaPart]
) -> GoodputPart:
    """The part of the report: of the accelerators, or of the replicas if there are none."""
    on_accelerators, weights = any(part.accelerators for part in replicas), _weights(data, replicas)
    nodes: dict[str, Counter[str]] = defaultdict(Counter)
    for part in replicas:
        weight, spans = weights[part.replica], phases[part.replica]
        for name, begin_s, end_s in _stays(data, part):
            own = seconds_of(spans.within(begin_s, end_s), windows)
            if own or end_s == inf:
                nodes[name].update({cause: weight * seconds / HOUR_S for cause, seconds in own.items()})
    total: Counter[str] = Counter()
    for hours in nodes.values():
        total.update(hours)
    every, interruptions = sum(total.values()), _interruptions(data)
    return GoodputPart(
        unit="accelerator" if on_accelerators else "replica",
        hours=every,
        productive_h=total[PRODUCTIVE],
        share=total[PRODUCTIVE] / every if every else None,
        lost=_lost(total),
        nodes=tuple(sorted((_node(name, hours) for name, hours in nodes.items()), key=_productivity)),
        interruptions=interruptions,
        mean_time_between_interruptions_h=data.duration_ms / 1000 / HOUR_S / interruptions if interruptions else None,
    )


def _stays(data: RunData, part: ReplicaPart) -> Iterator[tuple[str, float, float]]:
    """The nodes of a replica in turn, each with the seconds of the run at which it came and left.

    system.json describes the last one only; samples name the node of every start. The time from a
    loss to the next start is lost on the node that was lost.
    """
    last, start_ms = part.node or f"replica {part.replica}", data.start_ms or 0
    arrivals = sorted(entry_of(data, part.replica).arrivals, key=when)
    names = [data.telemetry.hosts.get(arrival.body.writer, last) for arrival in arrivals[:-1]]
    leaves = [(arrival.time_ms - start_ms) / 1000 for arrival in arrivals[1:]]
    yield from zip([*names, last], [-inf, *leaves], [*leaves, inf], strict=True)


def _weights(data: RunData, replicas: Sequence[ReplicaPart]) -> dict[int, float]:
    """Accelerators of each replica, or 1 for each if there are none."""
    known = [part.accelerators for part in replicas if part.accelerators]
    # One that never came was to have as many as the others.
    usual, described = median(known) if known else 1, data.system
    weights = {
        part.replica: float(part.accelerators or (1 if str(part.replica) in described else usual)) for part in replicas
    }
    claimed: Counter[str] = Counter()
    for part in replicas:
        claimed.update({part.node or "": weights[part.replica]})
    for part in replicas:
        facts = described.get(str(part.replica))
        there = (facts.accelerators or 0) * data.manifest.config.replica.nodes if facts is not None else 0
        # Replicas that share accelerators have a part of them each.
        if part.node and 0 < there < claimed[part.node]:
            weights[part.replica] *= there / claimed[part.node]
    return weights


def _node(name: str, hours: Counter[str]) -> NodeHoursPart:
    return NodeHoursPart(node=name, hours=sum(hours.values()), productive_h=hours[PRODUCTIVE], lost=_lost(hours))


def _productivity(part: NodeHoursPart) -> tuple[float, str]:
    return part.productive_h / part.hours if part.hours else 0.0, part.node


def _lost(hours: Counter[str]) -> tuple[LostPart, ...]:
    every = sum(hours.values())
    return tuple(
        LostPart(cause=cause, hours=own, share=own / every)
        for cause, own in sorted(hours.items(), key=lambda item: (-item[1], item[0]))
        if cause != PRODUCTIVE and own > 0
    )


def _interruptions(data: RunData) -> int:
    """Losses of replicas that had come, failed trainings, and resumptions, within the run."""
    start_ms, ledger = data.start_ms, data.ledger
    if start_ms is None:
        return 0
    losses = [
        loss.time_ms
        for entry in ledger.replicas.values()
        for loss in entry.losses
        if any(arrival.time_ms <= loss.time_ms for arrival in entry.arrivals)
    ]
    failures = [
        ledger.corrected(trial.writer, trial.failed.time_ms)
        for trial in ledger.trials.values()
        if trial.failed is not None
    ]
    resumptions = [item.time_ms for item in ledger.resumptions if not item.body.new_clock]
    return sum(start_ms <= moment <= data.end_ms for moment in (*losses, *failures, *resumptions))
