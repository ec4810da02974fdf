"""Accuracy by value of each hyperparameter, over the points that the tuner tried."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean

from analysis.report.model import HyperparameterPart, TrialPart


def by_value(trials: Iterable[TrialPart]) -> tuple[HyperparameterPart, ...]:
    """One row per tried value of each hyperparameter, in order."""
    found: dict[tuple[str, int | float | str], list[float]] = {}
    for trial in trials:
        if trial.point > 0 and trial.best_accuracy is not None:
            for name, value in trial.hyperparameters.items():
                found.setdefault((name, value), []).append(trial.best_accuracy)
    return tuple(
        HyperparameterPart(
            name=name,
            value=value,
            points=len(accuracies),
            mean_accuracy=fmean(accuracies),
            best_accuracy=max(accuracies),
        )
        for (name, value), accuracies in sorted(found.items(), key=lambda item: (item[0][0], str(item[0][1])))
    )
