"""A trial of a scientific workload against its job, its run, and itself."""

from __future__ import annotations

from collections.abc import Iterator
from math import isclose, isfinite

from aiperf.records.bodies import EpochCompleted, JobIssued, WorkloadStarted
from aiperf.records.damage import Damage
from analysis.reading.integrity.bounds import check_finite, check_open_epochs, check_order
from analysis.reading.integrity.evidence import EpochRows, named_rows
from analysis.reading.integrity.facts import SIMULATED, check_built
from analysis.reading.integrity.jobs import check_issued
from analysis.reading.integrity.traces import Traces, TrialTrace
from analysis.reading.integrity.view import Placed, RunView
from analysis.reading.science.quality import measured_of, reaches_target

Trace = TrialTrace[WorkloadStarted]

SAME = 1e-9
"""Relative difference between a quality and the measure that it is."""


def check_model_start(trace: Trace, view: RunView) -> Iterator[Damage]:
    """A training that is not of a job that the primary issued to this replica before."""
    place, body = trace.started, trace.started.body
    for job in check_issued(trace, view):
        if isinstance(job, Damage):
            yield job
        elif _terms(body) != _terms(job.body):
            yield place.damage("conflict", f"trial {body.trial} is {_shown(body)}", f"{_shown(job.body)}, as issued")


def _terms(body: WorkloadStarted | JobIssued) -> tuple[object, ...]:
    return body.workload, body.instance, body.resumes


def _shown(body: WorkloadStarted | JobIssued) -> str:
    resumes = "" if body.resumes is None else f", resuming {body.resumes}"
    return f"model {body.instance} of {body.workload}{resumes}"


def check_model_facts(trace: Trace, view: RunView) -> Iterator[Damage]:
    """A start, or a built model, of another size, trainer or framework than the run's."""
    place, body, config = trace.started, trace.started.body, view.config
    pairs: tuple[tuple[str, str, str], ...] = (
        ("size", body.size, config.science.size),
        ("trainer", body.trainer, config.training.trainer),
        ("framework", body.framework, config.training.framework),
    )
    for name, found, expected in pairs:
        if found != expected:
            yield place.damage("facts", f"trial {body.trial} has the {name} {found}", f"{expected}, as run.json says")
    if config.training.precision not in (None, body.precision):
        found = f"trial {body.trial} has the precision {body.precision}"
        yield place.damage("facts", found, f"{config.training.precision}, as run.json says")
    if not body.target or not all(map(isfinite, body.target.values())):
        yield place.damage("bounds", f"trial {body.trial} has the target {body.target}", "values of measures")
    for built in trace.built:
        yield from check_built(built, body.networks.values(), body.precision, view)


def check_model_training(traces: Traces, view: RunView) -> Iterator[Damage]:
    """Epochs that do not follow each other, or with values that cannot be; progress that falls."""
    yield from check_order(traces)
    for trace in traces.trials:
        body = trace.started.body
        for place in trace.epochs:
            view.of_workload.setdefault(body.workload, []).append(place)
            if place.body.epoch > body.epochs:
                yield place.damage("bounds", f"epoch {place.body.epoch}", f"at most {body.epochs}, as planned")
    yield from check_finite(traces)
    for trace in traces.trials:
        for place in trace.epochs:
            yield from _measures(place, trace.started.body)
    yield from check_open_epochs(traces)


def _measures(place: Placed[EpochCompleted], started: WorkloadStarted) -> Iterator[Damage]:
    """Measures that are missing or no numbers, and a quality that is another one."""
    epoch = place.body
    for kind in (epoch.measures or {}, epoch.training_measures or {}):
        for name, value in kind.items():
            if not isfinite(value):
                yield place.damage("bounds", f"the measure {name} is {value}", "a finite number")
    if epoch.images_evaluated <= 0 or not started.target:
        return
    missing = [name for name, value in measured_of(epoch, started).items() if value is None]
    if missing:
        yield place.damage("bounds", f"epoch {epoch.epoch} has no {', '.join(missing)}", "every measure of the target")
    if epoch.training_measures is not None and epoch.epoch != started.epochs and not reaches_target(epoch, started):
        found = f"measures of training examples in epoch {epoch.epoch} of {started.epochs}"
        yield place.damage("bounds", found, "none before the end of the training")
    first = next(iter(started.target))
    measure = (epoch.measures or {}).get(first)
    if measure is not None and epoch.measured_quality is not None:
        expected = measure if started.higher else -measure
        if not isclose(epoch.measured_quality, expected, rel_tol=SAME, abs_tol=SAME):
            yield place.damage("bounds", f"a quality of {epoch.measured_quality}", f"{expected}, by the {first}")


def rows_of_model(trace: Trace, view: RunView) -> Iterator[EpochRows]:
    """The rows that a trial's records name; a task may have several to a step."""
    columns = named_rows(trace.completed)
    if len(columns) and view.config.training.trainer != SIMULATED:
        yield EpochRows(trace.trial, None, trace.started.file, columns)
