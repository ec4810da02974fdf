"""A run as MLPerf-style log lines (`:::MLLOG`), as the parsers of mlcommons/logging read them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from aiperf.rules.work import judged
from analysis.output.hpclog import model_logs
from analysis.reading.run_data import RunData
from analysis.reading.work import epoch_rows, on_one_clock
from analysis.report.model import Report

Evaluation = tuple[int, float, dict[str, int]]
"""Time, accuracy, and epoch and trial."""

MANY = 10_000
"""Of more evaluations than this, only those that improved on all before are written."""


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
