"""Replicas that hold a run back: their effect on the rate of the same work, and what differs there.

Replicas train different networks, so rates are compared after a fit of log(operations per second)
on the size of the network and the batch size (`analysis.report.cluster.judgement`). The time
between trainings is compared as it is.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, expm1, log
from statistics import fmean, median

import numpy as np

from aiperf.records.bodies import TrialStarted
from analysis.reading.run_data import RunData
from analysis.report.cluster.causes import Cause, Load, cause_of, load_of
from analysis.report.cluster.judgement import FEWEST, Effects, Numbers, effects_of, habitual
from analysis.report.cluster.places import cpus_of_ranks
from analysis.report.devices import Machine
from analysis.report.estimates import ComparisonPart, EffectPart
from analysis.report.model import ReplicaPart
from analysis.report.physics import DevicesAtWork
from analysis.report.rates.pace import Kind, trained_of
from analysis.report.rates.work_intervals import WorkIntervalColumns
from analysis.report.sampling import WorkIntervals

NO_TIME_MS = 1
"""Shortest time of an epoch that has a rate."""


@dataclass(frozen=True, slots=True)
class Observation:
    """A value of one replica: of a training (`work`), or of the time after one (`between`)."""

    replica: int
    trial: int
    seconds: float
    """Median seconds of an epoch, or the seconds to the next training."""
    value: float
    columns: tuple[float, ...] = ()
    compiles: bool = False
    """True if its only epoch is the first one, which compiles."""


@dataclass(frozen=True, slots=True)
class Compared:
    """The replicas of one kind in one measure."""

    measure: str
    observations: tuple[Observation, ...]
    found: Effects


@dataclass(frozen=True, slots=True)
class Comparison:
    """The replicas of every kind in both measures, and the loads of their nodes meanwhile."""

    every: tuple[Compared, ...]
    loads: dict[int, Load]


@dataclass(slots=True)
class _Kinds:
    work: dict[Kind, list[Observation]] = field(default_factory=lambda: defaultdict(list))
    between: dict[Kind, list[Observation]] = field(default_factory=lambda: defaultdict(list))


def compare(run: DevicesAtWork) -> Comparison:
    """Compare the replicas of each kind in both measures."""
    kinds = _Kinds()
    last: dict[int, tuple[int, Kind, int, float]] = {}
    for trial, rows in _in_time(run):
        own = run.work.every.only(rows)
        replica, kind = int(own.replicas[0]), _kind(run, trial, int(own.replicas[0]))
        if kind is None:
            continue
        if (seen := _of_work(run, trial, own)) is not None:
            kinds.work[kind].append(seen)
        begin_ms, end_ms = int(own.begins_ms[0]), int(own.ends_ms[-1])
        if replica in last and _together(run, last[replica][0], trial):
            before, its_kind, ended_ms, lasted_s = last[replica]
            gap_s = max(0.0, (begin_ms - ended_ms) / 1000)
            kinds.between[its_kind].append(Observation(replica, before, gap_s, lasted_s))
        last[replica] = trial, kind, end_ms, (end_ms - begin_ms) / 1000
    between = {kind: _shares(own) for kind, own in kinds.between.items()}
    hosts = {replica: machine.host or "" for replica, machine in run.machines.items()}
    bound, sharers = cpus_of_ranks(run.data), Counter(hosts.values())
    loads = {
        replica: replace(
            _load(run, replica, working, hosts.get(replica, ""), sharers), cpus=_cpus(run.data, replica, bound)
        )
        for replica, working in run.busy.items()
    }
    return Comparison((*_compared("work", kinds.work), *_compared("between", between)), loads)


def _load(run: DevicesAtWork, replica: int, working: WorkIntervals, host: str, sharers: Mapping[str, int]) -> Load:
    facts = run.data.system.get(str(replica))
    whole = facts is None or (facts.node_accelerators or 0) <= (facts.accelerators or 0)
    return load_of(run.nodes.get(host), working, sharers.get(host) == 1, whole)


def _cpus(data: RunData, replica: int, bound: Mapping[int, int]) -> int | None:
    """CPUs of its node that a replica may use: its agent, and its ranks, which may be bound."""
    facts = data.system.get(str(replica))
    cpus = facts.cpu_count if facts is not None else None
    return cpus if cpus is None else min(cpus, bound.get(replica, cpus))


def _in_time(run: DevicesAtWork) -> list[tuple[int, slice]]:
    """The rows of each trial, in order of their beginnings."""
    begins = run.work.every.begins_ms
    return sorted(run.work.rows(), key=lambda item: (int(begins[item[1].start]), item[0]))


def _kind(run: DevicesAtWork, trial: int, replica: int) -> Kind | None:
    begun, machine = run.data.ledger.trials[trial].begun, run.machines.get(replica)
    if begun is None:
        return None
    devices = (machine.name, _count(run, machine)) if machine is not None else ()
    suite = "automl" if isinstance(begun, TrialStarted) else trained_of(begun)
    return (*devices, begun.precision, suite)


def _count(run: DevicesAtWork, machine: Machine) -> int:
    """Devices of a replica; of CPUs all of its node, as one that may use fewer is no other kind."""
    facts = run.data.system.get(str(machine.replica))
    return facts.node_cpu_count or machine.count if machine.on_cpus and facts is not None else machine.count


def _of_work(run: DevicesAtWork, trial: int, own: WorkIntervalColumns) -> Observation | None:
    """The median rate of complete epochs; the first one, which compiles, only if it is alone."""
    entry = run.data.ledger.trials[trial]
    complete = own.only(slice(0, len(entry.epochs)))
    columns = complete.only(slice(1, None)) if len(complete) > 1 else complete
    columns = columns.only(columns.durations_ms >= NO_TIME_MS)
    operations = columns.operations.astype(np.float64)
    if not len(columns) or operations.min() <= 0:
        return None
    seconds = columns.durations_ms / 1000
    value = float(np.median(np.log(operations / seconds)))
    middle_s, compiles = float(np.median(seconds)), len(complete) == 1
    return Observation(int(own.replicas[0]), trial, middle_s, value, _size(run, trial), compiles)


def _size(run: DevicesAtWork, trial: int) -> tuple[float, ...]:
    """Logarithms of operations, batch size and weights, and the square of the first."""
    begun = run.data.ledger.trials[trial].begun
    if not isinstance(begun, TrialStarted):
        return 0.0, 0.0, 0.0, 0.0  # trainings of a workload are alike
    facts = run.data.architectures.get(begun.architecture)
    operations = log(max(1, run.data.work.costs[trial].total))
    batch = begun.hyperparameters.get("batch_size")
    of_batch = log(max(1.0, float(batch))) if isinstance(batch, int | float) else 0.0
    # Networks of one size differ by some percent: the square is that of the distance to 1 GOP.
    return operations, of_batch, (operations - log(1e9)) ** 2, log(max(1, facts.parameters)) if facts else 0.0


def _together(run: DevicesAtWork, before: int, trial: int) -> bool:
    """True if one process of the replica did both trainings, and the first one ended well."""
    one, other = run.data.ledger.trials[before], run.data.ledger.trials[trial]
    return one.writer == other.writer and one.ended is not None


def _shares(found: Sequence[Observation]) -> list[Observation]:
    """The values: -log((usual training + own time after it) / usual training)."""
    usual_s = max(1e-3, median(each.value for each in found))
    return [
        Observation(each.replica, each.trial, each.seconds, -log((usual_s + each.seconds) / usual_s)) for each in found
    ]


def _compared(measure: str, kinds: Mapping[Kind, Sequence[Observation]]) -> Iterator[Compared]:
    for seen in kinds.values():
        # A replica that is an epoch behind would be called slow for what all have compiled.
        own = [each for each in seen if not each.compiles] or seen
        replicas = np.array([each.replica for each in own], np.int64)
        if len(np.unique(replicas)) >= FEWEST:
            values: Numbers = np.array([each.value for each in own], np.float64)
            columns: Numbers = np.array([each.columns for each in own], np.float64).reshape(len(own), -1)
            found = effects_of(replicas, values, columns)
            if found is None:
                continue
            if measure == "between":
                found = replace(found, slow=found.slow & habitual(found, replicas, values))
            yield Compared(measure, tuple(own), found)


def comparison_part(found: Comparison, replicas: Sequence[ReplicaPart]) -> ComparisonPart:
    """The part of the report, with what differs in each slow replica."""
    parts = {part.replica: part for part in replicas}
    effects = [effect for each in found.every for effect in _effects(each, parts, found.loads)]
    compared = {effect.replica for effect in effects}
    kinds = max((sum(each.measure == name for each in found.every) for name in ("work", "between")), default=0)
    return ComparisonPart(
        compared=len(compared),
        kinds=kinds,
        effects=tuple(sorted(effects, key=lambda part: (not part.slow, part.effect, part.replica))),
    )


def _effects(each: Compared, parts: Mapping[int, ReplicaPart], loads: Mapping[int, Load]) -> Iterator[EffectPart]:
    found = each.found
    half = found.reach * found.errors
    rows = zip(
        found.replicas.tolist(),
        found.effects.tolist(),
        half.tolist(),
        found.counts.tolist(),
        found.slow.tolist(),
        strict=True,
    )
    others = [
        parts[number]
        for number, slow in zip(found.replicas.tolist(), found.slow.tolist(), strict=True)
        if not slow and number in parts
    ]
    for number, effect, reach, count, slow in rows:
        cause: Cause | None = None
        if slow and number in parts:
            cause = cause_of(each.measure, parts[number], others, effect, loads)
        yield EffectPart(
            measure=each.measure,
            replica=number,
            node=parts[number].node if number in parts else None,
            observations=count,
            effect=expm1(effect),
            low=expm1(effect - reach),
            high=expm1(effect + reach),
            slow=slow,
            phase=cause.phase if cause is not None else None,
            evidence=f"{cause.evidence}; {_sample(each, number)}" if cause is not None else None,
        )


def _sample(each: Compared, replica: int) -> str:
    """The middle observation of a replica, next to what the others' pace gives."""
    own = [
        (seen.value - expected, seen, expected)
        for seen, expected in zip(each.observations, each.found.predicted.tolist(), strict=True)
        if seen.replica == replica
    ]
    left, seen, _ = sorted(own, key=lambda item: item[0])[len(own) // 2]
    if each.measure == "work":
        return (
            f"an epoch of trial {seen.trial} took {seen.seconds:.1f} s, and {seen.seconds * exp(left):.1f} s "
            "at the pace of the others"
        )
    usual_s = fmean(other.seconds for other in each.observations if other.replica != replica)
    return f"{seen.seconds:.1f} s passed after trial {seen.trial}, and {usual_s:.1f} s after one of the others"
