"""The part of the report about scientific workloads, from a run's records alone.

Definitions: the HPC AI500 paper (Jiang et al. 2019, section 3.4) names time, cost and power to
accuracy; the formulas are this project's ([results.md](../../../docs/results.md)).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from statistics import median
from typing import Any

import numpy as np

from analysis.reading.run_data import RunData
from analysis.report.model import TrialPart
from analysis.report.rates.peak import peak_of_trial
from analysis.report.rates.work_intervals import WorkInterval, WorkIntervals, sustained_ops
from analysis.report.roofline.parts import RooflinePart
from analysis.report.science.models import Model, Reading, models_of, valid_share
from analysis.report.science.price import cost, joules_until
from analysis.report.workloads import (
    InstancePart,
    ModelTrialPart,
    QualityPart,
    RatesPart,
    ToQualityPart,
    WorkloadPart,
)

Numbers = dict[str, float | None]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What other parts of the report have found."""

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
        "size": config.science.size, "framework": config.training.framework, "hyperparameters": {}, "networks": {},
        **dict.fromkeys(("higher", "dataset", "generated", "precision")),
    }  # fmt: skip
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
        time_to_quality_least_s=min(times, default=None),
        time_to_quality_most_s=max(times, default=None),
        training_operations=operations.total if operations is not None else None,
        evaluation_operations=operations.forward if operations is not None else None,
        models=tuple(parts),
        **facts,
        **_medians(parts),
    )


def _medians(parts: Sequence[InstancePart]) -> Numbers:
    """Medians of all models' numbers; of peaks, the largest."""
    names = [*ToQualityPart.model_fields, *RatesPart.model_fields]
    peaks = [part.peak_ops for part in parts if part.peak_ops is not None]
    return {**{name: _median(getattr(part, name) for part in parts) for name in names},
            "peak_ops": max(peaks, default=None)}  # fmt: skip


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
            t_s=(reading.time_ms - model.start_ms) / 1000, trial=reading.trial, epoch=reading.facts.epoch,
            images=trained, operations=done, quality=reading.quality, reached=reading.reached,
            measures=reading.facts.measures or {}, training_measures=reading.facts.training_measures or {},
        )
        for reading, trained, done in zip(model.readings, images, operations, strict=True)
    )  # fmt: skip


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
        "cost_to_quality": cost(data, reached.t_s, joules),
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
