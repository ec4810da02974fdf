"""The part of the report about scientific workloads: quality, and its cost and energy.

Definitions: the HPC AI500 paper (Jiang et al. 2019, section 3.4) names time, cost and power to
accuracy; the formulas are this project's ([results.md](../../../docs/results.md)).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise
from math import comb
from statistics import median
from typing import Any

import numpy as np

from analysis.reading.integrity.view import replica_of
from analysis.reading.run_data import RunData
from analysis.reading.telemetry import NodeSeries
from analysis.report.cluster.cost import price_of
from analysis.report.model import TrialPart
from analysis.report.rates.peak import peak_of_trial
from analysis.report.rates.work_intervals import WorkInterval, WorkIntervals, sustained_ops
from analysis.report.roofline.parts import RooflinePart
from analysis.report.science.models import Model, Reading, models_of, valid_share
from analysis.report.workloads import (
    InstancePart,
    ModelTrialPart,
    QualityPart,
    RatesPart,
    ToQualityPart,
    WorkloadPart,
)

# Energy and cost of a model until a moment: those of the nodes whose replicas trained it, in equal
# parts where several replicas share one.


def cost(data: RunData, model: Model, end_ms: int, joules: float | None) -> float | None:
    """Price of the nodes that trained a model until a moment, and of their energy.

    In the stated currency. Replicas on one host, by their descriptions, share its hours.
    """
    config = data.manifest.config
    hosts = Counter(facts.host for facts in data.system.values())
    seconds = 0.0
    for replica, begin_ms, until_ms in _turns(model, end_ms):
        facts = data.system.get(str(replica))
        sharers = hosts[facts.host] if facts is not None and facts.host is not None else 1
        seconds += (until_ms - begin_ms) / 1000 / sharers
    return price_of(config.price, seconds * config.replica.nodes, joules)


def joules_until(data: RunData, model: Model, end_ms: int) -> float | None:
    """Joules of the nodes that trained a model, from its first job to a moment.

    After an interruption they are those of the former replica until the next job is issued. None if
    any node does not report its energy.
    """
    total = 0.0
    for replica, begin_ms, until_ms in _turns(model, end_ms):
        nodes = _nodes(data, replica)
        found = [_joules(node, begin_ms, until_ms) for node in nodes]
        known = [value for value in found if value is not None]
        if len(known) < max(len(found), data.manifest.config.replica.nodes):
            return None
        total += sum(known)
    return total


def _turns(model: Model, end_ms: int) -> Iterator[tuple[int, int, int]]:
    """Replica, beginning and end of each of its turns with the model."""
    issued = [
        (trial.issued_ms, trial.issued.replica)
        for trial in model.trials
        if trial.issued is not None and trial.issued_ms is not None and trial.issued_ms <= end_ms
    ]
    # A turn lasts until the next job; the end closes the last one.
    for (begin_ms, replica), (until_ms, _) in pairwise([*sorted(issued), (end_ms, -1)]):
        yield replica, begin_ms, until_ms


def _nodes(data: RunData, replica: int) -> list[NodeSeries]:
    """The sampled nodes of a replica."""
    return [node for node in data.telemetry.nodes if any(replica_of(name) == replica for name in node.writers)]


def _joules(node: NodeSeries, begin_ms: int, end_ms: int) -> float | None:
    """A replica's part of the joules of a node's accelerators and CPU packages.

    Replicas that share the node have equal parts. None if it reports neither, has accelerators that
    do not report, or has no sample of the time.
    """
    times = node.column("time_ms")
    if not len(times) or times[0] > end_ms or times[-1] < begin_ms:
        return None
    span = np.array([begin_ms, end_ms], dtype=np.float64)
    accelerators, cpus = node.accelerator_energy(span), node.cpu_energy(span)
    if accelerators is None and (cpus is None or np.nanmax(node.column("accelerators"), initial=0.0) > 0):
        return None
    sharers = len({replica_of(name) for name in node.writers})
    return float(sum(part[1] - part[0] for part in (accelerators, cpus) if part is not None)) / sharers


# The parts of the report, from a workload to its models and their trials.

Numbers = dict[str, float | None]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Findings of other parts of the report."""

    trials: dict[int, TrialPart]
    work: WorkIntervals
    shares: dict[int, float]
    """Share of the ceiling by trial."""


def workload_parts(
    data: RunData, trials: Iterable[TrialPart], work: WorkIntervals, roofline: RooflinePart
) -> tuple[WorkloadPart, ...]:
    """The workloads in the order of the configuration, those without any model included."""
    found = Surroundings(
        {trial.id: trial for trial in trials}, work, {part.trial: part.share_of_ceiling for part in roofline.trials}
    )
    models = {name: list(own) for name, own in groupby(models_of(data), key=lambda model: model.workload)}
    names = dict.fromkeys([*data.manifest.config.science.workloads, *models])
    return tuple(_workload(data, name, models.get(name, []), found) for name in names)


def _workload(data: RunData, name: str, models: Sequence[Model], found: Surroundings) -> WorkloadPart:
    parts = [_instance(data, model, found) for model in models]
    config = data.manifest.config
    first = next((model.begun for model in models if model.begun is not None), None)
    costs = next((c for model in models for t in model.trials if (c := data.costs.by_trial.get(t.trial))), None)
    operations = costs.operations if costs is not None else None
    times = [part.time_to_quality_s for part in parts if part.time_to_quality_s is not None]
    facts: dict[str, Any] = {
        "size": config.science.size,
        "framework": config.training.framework,
        "hyperparameters": {},
        "networks": {},
        **dict.fromkeys(("higher", "dataset", "generated", "precision")),
    }
    if first is not None:
        facts = {key: getattr(first, key) for key in facts}
    measure = next(iter(first.target), None) if first is not None else None
    return WorkloadPart(
        workload=name,
        instances=max([config.science.instances, *(part.instance + 1 for part in parts)]),
        reached=sum(part.reached for part in parts),
        measure=measure,
        target=first.target[measure] if first is not None and measure is not None else None,
        targets=first.target if first is not None else {},
        quality=_median(part.quality for part in parts),
        training_quality=_median(part.training_quality for part in parts),
        test_quality=_median(part.test_quality for part in parts),
        test_images=next((model.test_images for model in models if model.test_images), None),
        time_to_quality_least_s=min(times, default=None),
        time_to_quality_most_s=max(times, default=None),
        valid_operations_per_joule=_median(map(_valid_per_joule, parts)),
        training_operations=operations.total if operations is not None else None,
        evaluation_operations=operations.forward if operations is not None else None,
        models=tuple(parts),
        **facts,
        **_medians(parts),
        **_intervals(parts, times),
    )


def _valid_per_joule(part: InstancePart) -> float | None:
    return part.valid_ops / part.mean_power_w if part.valid_ops is not None and part.mean_power_w else None


def _intervals(parts: Sequence[InstancePart], times: Sequence[float]) -> Numbers:
    """The intervals of medians; of times only if no model lacks one: those are the slowest."""
    rates = [part.valid_ops for part in parts if part.valid_ops is not None]
    least_s, most_s = median_interval(times if len(times) == len(parts) else ())
    low, high = median_interval(rates)
    return {
        "time_to_quality_low_s": least_s,
        "time_to_quality_high_s": most_s,
        "valid_ops_low": low,
        "valid_ops_high": high,
    }


def median_interval(values: Sequence[float]) -> tuple[float, float] | tuple[None, None]:
    """The 95 % interval of a median by order statistics, whatever the distribution.

    Of n values in order, the k-th and the (n + 1 - k)-th with the largest k for which fewer than k
    of n tosses of a coin show heads with a probability of at most 2.5 % (Conover 1999, Practical
    Nonparametric Statistics, section 3.2). None of fewer than 6.
    """
    count, below, found = len(values), 0, 0
    for heads in range(count):
        below += comb(count, heads)
        if 40 * below > 2**count:  # below / 2^n > 2.5 %, in whole numbers
            break
        found = heads + 1
    ordered = sorted(values)
    return (ordered[found - 1], ordered[count - found]) if found else (None, None)


def _medians(parts: Sequence[InstancePart]) -> Numbers:
    """Medians of all models' numbers; of peaks, the largest."""
    names = [*ToQualityPart.model_fields, *RatesPart.model_fields]
    peaks = [part.peak_ops for part in parts if part.peak_ops is not None]
    return {
        **{name: _median(getattr(part, name) for part in parts) for name in names},
        "peak_ops": max(peaks, default=None),
    }


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _instance(data: RunData, model: Model, found: Surroundings) -> InstancePart:
    trials = [found.trials[trial.trial] for trial in model.trials]
    end_ms = _end_ms(data, trials)
    curve = _curve(data, model)
    best = model.best
    seconds = max(0, end_ms - model.start_ms) / 1000
    issued = next((trial.issued for trial in model.trials if trial.issued is not None), None)
    return InstancePart(
        instance=model.instance,
        seed=issued.seed if issued is not None else None,
        reached=model.reached is not None,
        quality=best.quality if best is not None else None,
        training_quality=model.training_quality,
        test_quality=model.test_quality,
        started_s=(model.start_ms - data.start_ms) / 1000 if data.start_ms is not None else None,
        duration_s=seconds,
        images_trained=sum(trial.images_trained for trial in trials),
        images_evaluated=sum(trial.images_evaluated for trial in trials),
        operations=sum(trial.operations for trial in trials),
        curve=curve,
        trials=tuple(_trial(data, trial) for trial in trials),
        **_to_quality(data, model, curve),
        **_rates(data, trials, found, seconds, best),
    )


def _trial(data: RunData, trial: TrialPart) -> ModelTrialPart:
    own = {name: getattr(trial, name) for name in ModelTrialPart.model_fields if name != "resumes"}
    issued = data.ledger.trials[trial.id].issued
    return ModelTrialPart(**own, resumes=issued.resumes if issued is not None else None)


def _end_ms(data: RunData, trials: Sequence[TrialPart]) -> int:
    """The end of the last trial; of one that never started, that of the run."""
    ended = trials[-1].ended_s
    return data.end_ms if ended is None or data.start_ms is None else data.start_ms + round(1000 * ended)


def _curve(data: RunData, model: Model) -> tuple[QualityPart, ...]:
    images = accumulate(reading.facts.images_trained for reading in model.readings)
    operations = accumulate(_operations(data, reading) for reading in model.readings)
    return tuple(
        QualityPart(
            t_s=(reading.time_ms - model.start_ms) / 1000,
            trial=reading.trial,
            epoch=reading.facts.epoch,
            images=trained,
            operations=done,
            quality=reading.quality,
            reached=reading.reached,
            measures=reading.facts.measures or {},
            training_measures=reading.facts.training_measures or {},
            test_measures=reading.facts.test_measures or {},
            training_accuracy=reading.facts.training_accuracy,
        )
        for reading, trained, done in zip(model.readings, images, operations, strict=True)
    )


def _operations(data: RunData, reading: Reading) -> int:
    costs = data.costs.by_trial.get(reading.trial)
    facts = reading.facts
    return costs.operations.work(facts.images_trained, facts.images_evaluated) if costs is not None else 0


def _to_quality(data: RunData, model: Model, curve: Sequence[QualityPart]) -> Numbers:
    reached = next((point for point in curve if point.reached), None)
    if reached is None or model.reached is None:
        return dict.fromkeys(ToQualityPart.model_fields)
    joules = joules_until(data, model, model.reached.time_ms)
    return {
        "time_to_quality_s": reached.t_s,
        "epochs_to_quality": reached.epoch,
        "images_to_quality": reached.images,
        "operations_to_quality": reached.operations,
        "cost_to_quality": cost(data, model, model.reached.time_ms, joules),
        "energy_to_quality_j": joules,
        "mean_power_w": joules / reached.t_s if joules is not None and reached.t_s > 0 else None,
    }


def _rates(
    data: RunData, trials: Sequence[TrialPart], found: Surroundings, seconds: float, best: Reading | None
) -> Numbers:
    own = {trial.id: found.work[trial.id] for trial in trials if trial.id in found.work}
    every = found.work.every
    pieces = every.only(np.isin(every.trials, [*own]))
    peaks = [
        peak_of_trial(data.work.columns, data.work.trials.index(number), interval[0].begin_ms)
        for number, interval in own.items()
    ]
    span_s = pieces.span_ms / 1000
    ops = sum(trial.operations for trial in trials) / seconds if seconds > 0 else None
    return {
        "ops": ops,
        "sustained_ops": sustained_ops(pieces),
        "peak_ops": max((peak for peak in peaks if peak is not None), default=None),
        "valid_ops": ops * valid_share(best) if ops is not None else None,
        "images_per_s": sum(trial.images_trained for trial in trials) / span_s if span_s > 0 else None,
        "share_of_ceiling": _share(own, found.shares),
    }


def _share(own: dict[int, list[WorkInterval]], shares: dict[int, float]) -> float | None:
    """The shares of the trials, weighted by their times; None if one is not known."""
    if not own or not own.keys() <= shares.keys():
        return None
    times = {number: max(p.end_ms for p in pieces) - pieces[0].begin_ms for number, pieces in own.items()}
    return sum(shares[number] * times[number] for number in own) / sum(times.values())
