"""The models of scientific workloads as MLPerf HPC logs, with the keys of its rules 3.0.

One log a model, as MLPerf has one for each result. The checker of mlcommons/logging
(`--usage hpc --ruleset 3.0.0`) accepts that of `cosmoflow`, if its quality was reached.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aiperf.records.columns import moments_of
from analysis.reading.run_data import RunData
from analysis.report.model import Report
from analysis.report.science.models import Model, models_of
from analysis.report.workloads import InstancePart, QualityPart, WorkloadPart

Event = tuple[int, str, str, Any, dict[str, Any]]
"""Time, type, key, value and metadata of a line."""

NUMBERS = {
    "opt_learning_rate_warmup_epochs": "warmup_epochs",
    "opt_learning_rate_warmup_factor": "warmup_factor",
    "opt_weight_decay": "weight_decay",
    "dropout": "dropout",
}
"""Hyperparameters by the keys of MLPerf."""

LISTS = {
    "opt_learning_rate_decay_boundary_epochs": "decay_epochs",
    "opt_learning_rate_decay_factor": "decay_factors",
}
"""The same of lists, recorded as numbers with commas."""

POINT, BEGIN, END = "POINT_IN_TIME", "INTERVAL_START", "INTERVAL_END"


def model_logs(data: RunData, report: Report) -> Iterator[tuple[str, list[Event]]]:
    """The name of each model's log, such as `cosmoflow/result_0.txt`, and its events in order."""
    models = {(model.workload, model.instance): model for model in models_of(data)}
    for part in report.workloads:
        for instance in part.models:
            model = models[part.workload, instance.instance]
            yield f"{part.workload}/result_{instance.instance}.txt", [*_events(data, report, part, instance, model)]


def _events(data: RunData, report: Report, part: WorkloadPart, own: InstancePart, model: Model) -> Iterator[Event]:
    start_ms = model.start_ms
    yield start_ms, POINT, "cache_clear", False, {}
    # Preparation is no time apart: a job's time counts from its issue.
    yield start_ms, BEGIN, "init_start", None, {}
    for key, value in _about(data, report, part, own).items():
        yield start_ms, POINT, key, value, {}
    yield start_ms, END, "init_stop", None, {}
    yield start_ms, BEGIN, "run_start", None, {}
    last_ms = start_ms
    evaluations = _evaluations(data, model)
    for point in own.curve:
        end_ms = start_ms + round(1000 * point.t_s)
        evaluated_ms = max((time_ms for time_ms in evaluations if last_ms < time_ms <= end_ms), default=end_ms)
        yield from _epoch(point, part, (last_ms, evaluated_ms, end_ms))
        last_ms = end_ms
        if point.reached:
            break
    status = "success" if own.reached else "aborted"
    end_ms = last_ms if own.reached else max(last_ms, start_ms + round(1000 * own.duration_s))
    yield end_ms, END, "run_stop", None, {"status": status}


def _epoch(point: QualityPart, part: WorkloadPart, times_ms: tuple[int, int, int]) -> Iterator[Event]:
    begin_ms, evaluated_ms, end_ms = times_ms
    about = {"epoch_num": point.epoch}
    yield begin_ms, BEGIN, "epoch_start", None, about
    yield evaluated_ms, END, "epoch_stop", None, about
    yield evaluated_ms, BEGIN, "eval_start", None, about
    yield end_ms, END, "eval_stop", None, about
    if point.quality is not None:
        yield end_ms, POINT, "eval_accuracy", point.quality, about
        if not part.higher:
            yield end_ms, POINT, "eval_error", point.quality, about


def _evaluations(data: RunData, model: Model) -> list[int]:
    """When evaluations of a model began, as the primary's clock has it."""
    trials = {trial.trial for trial in model.trials}
    return [
        data.ledger.corrected(writer, time_ms)
        for replica in data.ledger.replicas.values()
        for writer, phases in sorted(replica.phases.items())
        for time_ms, phase, trial in moments_of(phases)
        if phase == "evaluate" and trial in trials
    ]


def _about(data: RunData, report: Report, part: WorkloadPart, own: InstancePart) -> dict[str, Any]:
    """Settings and hyperparameters; those that the records do not have are left out."""
    values, nodes = part.hyperparameters, data.manifest.config.replica.nodes
    replica = own.trials[-1].replica if own.trials else -1
    devices = next((item.accelerators for item in report.replica_details if item.replica == replica), 0)
    ranks = next((item.ranks or 1 for item in report.replica_details if item.replica == replica), 1)
    images, availability = _images(data, own), report.configuration["run"].get("availability", "research")
    about: dict[str, Any] = {
        "submission_benchmark": part.workload,
        "submission_org": report.name,
        "submission_platform": report.name,
        "submission_division": "closed" if report.verdict == "official" else "open",
        "submission_status": "onprem" if availability == "on-premise" else availability,
        "number_of_nodes": nodes,
        "accelerators_per_node": devices // nodes,
        "seed": own.seed,
        "global_batch_size": _number(values.get("batch_size"), 1) * max(1, ranks),
        "train_samples": images[0],
        "eval_samples": images[1],
        "opt_name": values.get("optimiser", ""),
        "opt_base_learning_rate": _number(values.get("learning_rate"), 0),
        "gradient_accumulation_steps": 1,
    }
    about |= {key: values[name] for key, name in NUMBERS.items() if name in values}
    return about | {key: _numbers(values[name]) for key, name in LISTS.items() if name in values}


def _images(data: RunData, own: InstancePart) -> tuple[int, int]:
    """Images trained and evaluated in the first epoch of a model; 0 without any."""
    found = [item.body for trial in own.trials for item in data.ledger.trials[trial.id].epochs.values()]
    return (found[0].images_trained, found[0].images_validated) if found else (0, 0)


def _number(value: object, default: float) -> float:
    return value if isinstance(value, int | float) else default


def _numbers(value: object) -> list[float]:
    """The numbers of a hyperparameter, which may be a text with commas."""
    texts = value.split(",") if isinstance(value, str) else [] if value is None else [str(value)]
    found = []
    for text in texts:
        try:
            found.append(float(text))
        except ValueError:
            return []
    return found
