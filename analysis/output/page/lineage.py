"""The best architecture: what it grew from, trial by trial, with every morph in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from analysis.report.model import Report, TrialPart

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
