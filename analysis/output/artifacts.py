"""The files of `aiperf report`: JSON, tables, formats of other tools, and what it draws."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.openmetrics.exposition import generate_latest

from aiperf.errors import EnvironmentNotReadyError
from aiperf.files import write_atomically
from aiperf.records.columns import moments_of
from aiperf.rules.work import judged
from analysis.output.frames import csv_text, epoch_table, tables_of
from analysis.reading.run_data import RunData
from analysis.reading.work import epoch_rows, on_one_clock
from analysis.reading.workers import MANY_TRIALS, do_both
from analysis.report.model import Report
from analysis.report.science.models import Model, models_of
from analysis.report.workloads import InstancePart, QualityPart, WorkloadPart

# Logs of scientific workloads in the format of MLPerf HPC, with the keys of its rules 3.0.
#
# One log a model, as MLPerf has one for each result. The checker of mlcommons/logging
# (`--usage hpc --ruleset 3.0.0`) accepts that of `cosmoflow`, if its quality was reached.

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
"""Hyperparameters that are lists, by the keys of MLPerf, recorded as numbers with commas."""

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
    # Preparation has no time of its own: a job's time counts from its issue.
    yield start_ms, BEGIN, "init_start", None, {}
    for key, value in _about(data, report, part, own).items():
        yield start_ms, POINT, key, value, {}
    yield start_ms, END, "init_stop", None, {}
    yield start_ms, BEGIN, "run_start", None, {}
    last_ms = start_ms
    evaluations = _evaluations_of_hpclog(data, model)
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


def _evaluations_of_hpclog(data: RunData, model: Model) -> list[int]:
    """Find when evaluations of a model began, on the primary's clock."""
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


# The log of a run in MLPerf's style (`:::MLLOG`), as the parsers of mlcommons/logging read it.

Evaluation = tuple[int, float, dict[str, int]]
"""Time, accuracy, and epoch and trial."""

MANY = 10_000
"""Number of evaluations above which only those that improved on all before are written."""


def mllog_lines(data: RunData, report: Report) -> Iterator[str]:
    """Lines in order of time: settings, start, the epochs' accuracies, end and score.

    Of scientific workloads, the log of the only model; of several, `result_logs` has one each.
    """
    if data.is_science:
        logs = [events for _, events in model_logs(data, report)]
        for event in logs[0] if len(logs) == 1 else ():
            yield _line(*event)
        return
    start_ms = data.start_ms if data.start_ms is not None else data.end_ms
    config = data.manifest.config
    about: dict[str, Any] = {
        "submission_benchmark": "aiperf",
        "submission_division": "closed" if report.verdict == "official" else "open",
        "submission_status": report.verdict,
        "submission_platform": report.name,
        "seed": config.run.seed,
        "global_batch_size": config.batch_size * max(1, (report.ranks or 0) // max(1, report.replicas)),
        "opt_name": "sgd",
        "opt_base_learning_rate": config.training.learning_rate,
        "train_samples": config.dataset.train_images,
        "eval_samples": config.dataset.validation_images,
    }
    for key, value in about.items():
        yield _line(start_ms, "POINT_IN_TIME", key, value)
    yield _line(start_ms, "INTERVAL_START", "run_start", None)
    for time_ms, accuracy, metadata in _evaluations(data):
        yield _line(time_ms, "POINT_IN_TIME", "eval_accuracy", accuracy, metadata)
    ended = "success" if report.ended == "deadline" else "aborted"
    yield _line(data.end_ms, "INTERVAL_END", "run_stop", None, {"status": ended})
    for key in ("score_ops", "regulated_score_ops", "error"):
        if (value := getattr(report, key)) is not None:
            yield _line(data.end_ms, "POINT_IN_TIME", key, value)


def result_logs(data: RunData, report: Report) -> Iterator[tuple[str, list[str]]]:
    """The file of each model of a scientific workload, with its lines; none in a run of AutoML."""
    for name, events in model_logs(data, report):
        yield name, [_line(*event) for event in events]


def _evaluations(data: RunData) -> Iterator[Evaluation]:
    """Measured accuracies in order of time; of very many, those that improved on all before."""
    entries = [*data.ledger.trials.values()]
    rows = on_one_clock(data.ledger, entries, [epoch_rows(entry) for entry in entries])
    rows = rows[judged(rows[:, 4], rows[:, 5]) & (rows[:, 1] <= data.end_ms)]
    rows = rows[np.argsort(rows[:, 1], kind="stable")]
    accuracies = rows[:, 5] / rows[:, 4]
    if len(rows) > MANY:
        better = np.append(True, accuracies[1:] > np.maximum.accumulate(accuracies)[:-1])
        rows, accuracies = rows[better], accuracies[better]
    for (place, time_ms, epoch, *_), accuracy in zip(rows.tolist(), accuracies.tolist(), strict=True):
        yield time_ms, accuracy, {"epoch_num": epoch, "trial": entries[place].trial}


def _line(time_ms: int, event: str, key: str, value: Any, metadata: dict[str, Any] | None = None) -> str:
    document = {
        "namespace": "",
        "time_ms": time_ms,
        "event_type": event,
        "key": key,
        "value": value,
        "metadata": metadata or {},
    }
    return f":::MLLOG {json.dumps(document)}"


# The report as OpenMetrics text, for Prometheus and other readers.

METRICS = {
    "score_ops": "Operations per second of wall time.",
    "regulated_score_ops": "-ln(error) times the score.",
    "error": "1 - best measured top-1 validation accuracy.",
    "peak_ops": "Best mean operations per second over ten progress intervals.",
    "sustained_ops": "Operations per second from the first training step to the last record.",
    "duration_seconds": "Wall time of the run.",
    "operations": "Operations that count.",
    "images_trained": "Images trained.",
    "images_evaluated": "Images evaluated.",
    "replicas": "Replicas asked for.",
    "accelerators": "Devices of all nodes; 0 on CPUs.",
    "ranks": "Ranks of all replicas.",
    "trials": "Trials that were issued.",
    "failures": "Trials and replicas that failed or were lost.",
}


def openmetrics_text(report: Report) -> str:
    """One gauge per known number, labelled with run and verdict; phases have one more label."""
    registry = CollectorRegistry()
    labels = {"run": report.name, "verdict": report.verdict}
    values = {
        **{
            name: float(getattr(report, name))
            for name in METRICS
            if isinstance(getattr(report, name, None), int | float)
        },
        "duration_seconds": report.duration_s,
        "operations": float(report.operations_total),
        "trials": float(len(report.trials)),
        "failures": float(len(report.failures)),
    }
    if report.is_science:
        values = {name: value for name, value in values.items() if name not in ("error", "trials")}
    for name, value in values.items():
        gauge = Gauge(f"aiperf_{name}", METRICS[name], list(labels), registry=registry)
        gauge.labels(**labels).set(value)
    phases = Gauge(
        "aiperf_phase_seconds", "Seconds by phase, over all replicas.", [*labels, "phase"], registry=registry
    )
    for phase, seconds in report.phases_s.items():
        phases.labels(**labels, phase=phase).set(seconds)
    if (efficiency := report.energy.comparable_per_joule) is not None:
        joules = Gauge(
            "aiperf_operations_per_joule", "Operations per joule, by basis.", [*labels, "basis"], registry=registry
        )
        joules.labels(**labels, basis=report.energy.basis).set(efficiency)
    exposition: bytes = generate_latest(registry)
    return exposition.decode()


# All files of a report, in the run directory or in a folder of the user's.


def write_report(folder: Path, data: RunData, report: Report) -> Path:
    """Write all files of a report to a folder; return the page. Raises EnvironmentNotReadyError.

    report.json is written first, so that the numbers are there even if a later file fails. Half of
    the work for a large run is done by a copy of this process at the same time: the figures, and
    the table of epochs.
    """
    with _named(folder):
        _write_json(folder, report)
        here, there = (partial(do, folder, data, report) for do in (_write_texts_and_page, _write_epochs_and_figures))
        do_both(here, there, several=len(report.trials) > MANY_TRIALS)
    return _page(folder)


def write_numbers(folder: Path, data: RunData, report: Report) -> None:
    """Write a report without page and figures. Raises EnvironmentNotReadyError.

    In the run directory those of an earlier report go, which show other numbers; in a folder that
    the user chose all files may be the user's, and stay.
    """
    with _named(folder):
        _write_json(folder, report)
        if folder == data.paths.report:
            for suffix in ("svg", "png"):
                for figure in _figures(folder).glob(f"*.{suffix}"):
                    figure.unlink()
            _page(folder).unlink(missing_ok=True)
        _write_table(folder, "epochs", epoch_table(data))
        _write_texts(folder, data, report)


def _page(folder: Path) -> Path:
    return folder / "report.html"


def _figures(folder: Path) -> Path:
    return folder / "figures"


@contextmanager
def _named(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise EnvironmentNotReadyError(
            [f"{folder} cannot be written: {error}; choose another with --output"]
        ) from error


def _write_json(folder: Path, report: Report) -> None:
    # As bytes at once: that of a damaged run may have a hundred megabytes.
    document = b"%b\n" % report.__pydantic_serializer__.to_json(report, indent=2)
    write_atomically(folder / "report.json", document)


def _write_table(folder: Path, name: str, table: pd.DataFrame) -> None:
    write_atomically(folder / "tables" / f"{name}.csv", csv_text(table).encode())


def _write_texts(folder: Path, data: RunData, report: Report) -> None:
    """Write the tables but that of epochs, and the logs for other programs."""
    for name, table in tables_of(report).items():
        _write_table(folder, name, table)
    if lines := [*mllog_lines(data, report)]:
        write_atomically(folder / "mllog.txt", _text(lines))
    for name, log in result_logs(data, report):
        write_atomically(folder / "mllog" / name, _text(log))
    write_atomically(folder / "metrics.txt", openmetrics_text(report).encode())


def _write_texts_and_page(folder: Path, data: RunData, report: Report) -> None:
    # What draws takes half a second to import: a report without page need not wait for it.
    from analysis.output.page.view import report_page  # noqa: PLC0415

    _write_texts(folder, data, report)
    write_atomically(_page(folder), report_page(data, report).encode())


def _write_epochs_and_figures(folder: Path, data: RunData, report: Report) -> None:
    from analysis.output.pictures import write_figures  # noqa: PLC0415

    _write_table(folder, "epochs", epoch_table(data))
    write_figures(_figures(folder), data, report)


def _text(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()
