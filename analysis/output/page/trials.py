"""The rows of the table of trials, and the curve and details that each leads to."""

from __future__ import annotations

import json
from typing import Any

from aiperf.cli.units import si
from analysis.output.page.lineage import morph_words
from analysis.output.page.vocabulary import TRIAL_STATES, known
from analysis.reading.run_data import RunData
from analysis.report.model import TrialPart

MOST_TRIALS = 400
"""Upper limit for the trials of the page, the most accurate ones; the CSV files have all."""


def trial_details(data: RunData, trials: list[TrialPart]) -> list[dict[str, Any]]:
    """The facts of each trial that its row opens, with the accuracies of each of its epochs."""
    return [_details(data, trial) for trial in trials]


def _details(data: RunData, trial: TrialPart) -> dict[str, Any]:
    known = [epoch.body for epoch in data.work.epochs_of(trial.id) if epoch.body.accuracy is not None]
    return {
        "id": trial.id,
        "epochs": [body.epoch for body in known],
        "accuracy": [_rounded(body.accuracy) for body in known],
        "training": [_rounded(body.training_accuracy) for body in known],
        "facts": [[name, text] for name, text in _facts(data, trial).items() if text],
    }


def _rounded(accuracy: float | None) -> float | None:
    return None if accuracy is None else round(accuracy, 5)


def _facts(data: RunData, trial: TrialPart) -> dict[str, str]:
    log = data.paths.trial_log(trial.id)
    state = TRIAL_STATES.get(trial.state, trial.state)
    return {
        "state": f"{state}: {trial.failure_reason[:300]}" if trial.failure_reason else state,
        "architecture": trial.architecture or "",
        "grown by": "; ".join(map(morph_words, trial.morphs)),
        "from": trial.parent or ("the initial architecture itself" if trial.started_s is not None else ""),
        "weights from": f"trial {trial.weights_from}" if trial.weights_from is not None else "",
        "trained again": f"the architecture of trial {trial.base}, with other hyperparameters" if trial.base else "",
        "hyperparameters": ", ".join(f"{name} {_value(value)}" for name, value in trial.hyperparameters.items()),
        "layers": f"{trial.depth}, {si(trial.parameters)} weights" if trial.depth else "",
        "training one image": si(trial.image_operations, "OP") if trial.image_operations else "",
        "precision": trial.precision or "",
        "compiled": _compiled(data, trial.id),
        "share of the ceiling": known(trial.share_of_ceiling),
        "log": log.relative_to(data.paths.root).as_posix(),
    }


def _compiled(data: RunData, number: int) -> str:
    """What its trainer compiled, as the trainer said; empty if no record says it."""
    entry = data.ledger.trials.get(number)
    return (entry.built.compiled or "") if entry is not None and entry.built is not None else ""


def _value(value: float | str) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def safe_json(value: Any) -> str:
    """JSON for a script element: nothing in it can end the element or begin another."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
