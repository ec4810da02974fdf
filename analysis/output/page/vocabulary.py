"""The words of the page: one vocabulary of states, the sentence of the result, times."""

from __future__ import annotations

from datetime import datetime

from aiperf.cli.units import count, percent, si
from analysis.output.page.machine import Machine
from analysis.report.model import Report, TrialPart

TRIAL_STATES = {
    "completed": "completed",
    "early_stop": "stopped early",
    "stopped": "stopped by the end",
    "failed": "failed",
    "lost": "lost",
    "running": "running",
}
"""The states of trials, as in report.json, in words."""

ENDS = {
    "deadline": "ran to its deadline",
    "completed": "completed its work",
    "interrupted": "was interrupted",
    "no_replicas": "lost all its replicas",
    "unfinished": "has not ended",
}
"""The ends of a run, as in report.json, in words."""

PHASES = {
    "train": "training",
    "evaluate": "evaluation",
    "checkpoint": "writing weights",
    "search": "choosing the next architecture",
    "start": "starting the trainer",
    "build": "building and compiling the model",
    "storage": "waiting for a file system that refused",
    "idle": "waiting for work",
    "down": "no process of the replica lived",
}
"""Phases of a replica and their meaning, work first."""


def readable_duration(seconds: float) -> str:
    """A duration for a sentence: 45 s, 5 min, 1 h 30 min."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    hours, rest = divmod(minutes, 60)
    return " ".join([*[f"{hours} h"] * bool(hours), *[f"{rest} min"] * bool(rest)])


def readable_time(moment: str | None) -> str:
    """An ISO time as 22 Nov 2026 06:41 UTC."""
    if moment is None:
        return "never started"
    return datetime.fromisoformat(moment).strftime("%-d %b %Y %H:%M UTC")


def evaluated_architectures(trials: tuple[TrialPart, ...]) -> int:
    """Architectures with a measured accuracy."""
    return len({trial.architecture for trial in trials if trial.best_accuracy is not None})


def error_percent(error: float) -> str:
    """An error in percent with two digits, such as 19 % or 1.4 %."""
    value = 100 * error
    return f"{value:.0f} %" if value >= 9.95 else f"{value:.1f} %" if value >= 0.095 else f"{value:.2f} %"


def known(share: float | None) -> str:
    """A share of a ceiling in percent; one without a measured ceiling is not known.

    One above 1 is no efficiency: algorithms save operations, and data stay in caches.
    """
    if share is None:
        return "not known"
    return percent(share) if share <= 1 else "above the ceiling"


def _reached(report: Report) -> str:
    """The models that reached their target, in words."""
    models, reached = (sum(getattr(part, name) for part in report.workloads) for name in ("instances", "reached"))
    return f"{reached} of {count(models, 'model')} of {count(len(report.workloads), 'workload')} reached the target"


def sentence(report: Report, machine: Machine) -> str:
    """The result in one sentence."""
    who = count(report.replicas, "replica")
    if machine.nodes:
        who += f" on {count(machine.nodes, 'node')}"
    if report.started is None:
        return f"{who} never started."
    if report.is_science:
        return f"{who} worked for {readable_duration(report.duration_s)}; {_reached(report)}."
    evaluated = evaluated_architectures(report.trials)
    if report.score_ops is None:
        done = f"{who} worked for {readable_duration(report.duration_s)}, but the run has no score"
    else:
        done = f"{who} reached {si(report.score_ops, 'OPS', 3)} in {readable_duration(report.duration_s)}"
    if not evaluated:
        return f"{done}; no epoch was completed."
    best = "the only architecture" if evaluated == 1 else f"the best of {count(evaluated, 'architecture')}"
    return f"{done}; {best} errs in {error_percent(report.error)}."
