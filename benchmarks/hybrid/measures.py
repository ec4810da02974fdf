"""Measures of the runs, from their reports."""

from statistics import median
from typing import Any

from benchmarks.hybrid.runs import WORKLOAD
from workloads.science import SCIENCE

Report = dict[str, Any]

_SIZE = SCIENCE.load(WORKLOAD).rehearsal

EPOCH_IMAGES = _SIZE.data.train_examples
TARGET = next(iter(_SIZE.target.values()))


def curves_of(report: Report) -> list[list[dict[str, Any]]]:
    """The epochs of each model: time, images and quality."""
    (workload,) = report["workloads"]
    return [model["curve"] for model in workload["models"]]


def to_quality(report: Report, quality: float) -> dict[str, Any]:
    """Medians over the models of what the quality took; null unless all of them reach it."""
    reached = [
        next((point for point in curve if point["quality"] is not None and point["quality"] >= quality), None)
        for curve in curves_of(report)
    ]
    names = {"time_to_quality_s": "t_s", "epochs_to_quality": "epoch", "images_to_quality": "images"}
    every = [point for point in reached if point is not None]
    is_reached = len(every) == len(reached) > 0
    hybrid = report["hybrid"]
    return {
        **{name: median(point[key] for point in every) if is_reached else None for name, key in names.items()},
        "best_quality": median(max(point["quality"] or 0.0 for point in curve) for curve in curves_of(report)),
        "staleness_mean": hybrid["staleness"]["mean"] if hybrid is not None else 0.0,
        "staleness_max": hybrid["staleness"]["max"] if hybrid is not None else 0,
        "waiting_share": hybrid["waiting_share"] if hybrid is not None else 0.0,
    }


def group_epochs_s(report: Report) -> list[float]:
    """Seconds that each group trains for its share of an epoch."""
    hybrid = report["hybrid"]
    if hybrid is None:
        return [report["phases_s"]["train"] * EPOCH_IMAGES / report["images_trained"]]
    share = EPOCH_IMAGES / hybrid["groups"]
    return [
        share * (group["computing_s"] + group["group_s"] + group["waiting_s"]) / group["images"]
        for group in hybrid["group_details"]
    ]


def epoch_s(report: Report) -> float:
    """Seconds for the images of an epoch, as long as all groups train at their own pace."""
    seconds = group_epochs_s(report)
    return len(seconds) / sum(1 / value for value in seconds)
