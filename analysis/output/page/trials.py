"""The rows of the table of trials, what each leads to, and the lineage of the best architecture."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aiperf.cli.units import si
from analysis.output.page.vocabulary import TRIAL_STATES, known
from analysis.reading.run_data import RunData
from analysis.report.model import Report, TrialPart

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
    """The parts that its trainer compiled, as the trainer last said; empty if no record says it."""
    entry = data.ledger.trials.get(number)
    if entry is None or entry.built is None:
        return ""
    later = [text for epoch in entry.epochs.values() if (text := epoch.body.compiled) is not None]
    return [entry.built.compiled or "", *later][-1]


def _value(value: float | str) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def safe_json(value: Any) -> str:
    """JSON for a script element: nothing in it can end the element or begin another."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


MOST_STEPS = 60
"""Upper limit for the generations that are followed: forged records may lead in a circle."""

INITIAL = {"resnet50": "ResNet-50", "resnet101": "ResNet-101", "resnet152": "ResNet-152"}

KINDS = {
    "Deepen": ("block", "blocks"),
    "AddSkip": ("skip connection", "skip connections"),
    "Widen": ("wider stream", "wider streams"),
    "EnlargeKernel": ("larger kernel", "larger kernels"),
}
"""Kinds of morphs, as records name them: one and several."""


@dataclass(frozen=True, slots=True)
class Step:
    """One architecture on the way: its first trial (that was measured, if any was), its morphs in
    words, its best accuracy.
    """

    trial: int
    architecture: str
    morphs: tuple[str, ...]
    accuracy: float | None


@dataclass(frozen=True, slots=True)
class Best:
    """The most accurate trial, and the steps from the initial architecture to it."""

    trial: TrialPart
    title: str
    steps: tuple[Step, ...]
    complete: bool
    """False if a parent on the way is not among the trials."""


def best_trial(report: Report) -> TrialPart | None:
    """The first of the most accurate trials; None without any measured accuracy."""
    measured = [trial for trial in report.trials if trial.best_accuracy is not None and trial.architecture]
    return min(measured, key=lambda trial: (-(trial.best_accuracy or 0.0), trial.id), default=None)


def best_of(report: Report) -> Best | None:
    """The best trial with its lineage."""
    trial = best_trial(report)
    if trial is None:
        return None
    trials = {trial.id: trial for trial in report.trials}
    firsts, measured, accuracies = _architectures(report)
    steps, seen = list[Step](), set[str]()
    kinds: Counter[str] = Counter()
    name = trial.architecture
    while name is not None and name in firsts and name not in seen and len(steps) < MOST_STEPS:
        seen.add(name)
        first = firsts[name]
        repeated = None if first.base is None else trials.get(first.base)
        if repeated is not None and repeated.architecture != name:
            # Another kernel size makes another architecture, whose record has no morphs of its own.
            morphs: tuple[str, ...] = (f"trial {repeated.id} again, with other hyperparameters",)
            origin = repeated.architecture
        else:
            morphs, origin = tuple(morph_words(morph) for morph in first.morphs), first.parent
            kinds.update(str(morph.get("kind")) for morph in first.morphs)
        steps.append(Step(measured.get(name, first.id), name, morphs, accuracies.get(name)))
        name = origin
    return Best(trial, _title(report, kinds), tuple(reversed(steps)), complete=name is None)


def _architectures(report: Report) -> tuple[dict[str, TrialPart], dict[str, int], dict[str, float]]:
    """The first trial, the first that was measured, and the best accuracy of every architecture."""
    firsts, measured, accuracies = dict[str, TrialPart](), dict[str, int](), dict[str, float]()
    for trial in report.trials:
        if trial.architecture is not None:
            firsts.setdefault(trial.architecture, trial)
            if trial.best_accuracy is not None:
                measured.setdefault(trial.architecture, trial.id)
                accuracies[trial.architecture] = max(accuracies.get(trial.architecture, 0.0), trial.best_accuracy)
    return firsts, measured, accuracies


def _title(report: Report, kinds: Counter[str]) -> str:
    """The initial architecture and the number of each kind of morph."""
    initial = str(report.configuration.get("search", {}).get("initial_architecture", "initial architecture"))
    parts = [INITIAL.get(initial, initial)]
    parts += [f"{number} {KINDS[kind][number > 1]}" for kind, number in kinds.most_common() if kind in KINDS]
    return " + ".join(parts)


def morph_words(morph: Mapping[str, str | int]) -> str:
    """A morph in words, with the names of the layers."""
    kind, rest = morph.get("kind"), {key: value for key, value in morph.items() if key != "kind"}
    match kind:
        case "Deepen":
            return f"a block (3x3 convolution, batch normalisation, ReLU) after {rest.get('after')}"
        case "Widen":
            return f"{rest.get('stream')} and its stream widened to {rest.get('channels')} channels"
        case "AddSkip":
            return f"a skip connection from {rest.get('source')} to {rest.get('target')}"
        case "EnlargeKernel":
            return f"the kernel of {rest.get('conv')} enlarged by 2"
    return f"{kind} {', '.join(f'{key} {value}' for key, value in rest.items())}".strip()
