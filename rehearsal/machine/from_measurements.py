"""A machine file from what was measured: finished runs, `aiperf profile`, `aiperf screen`."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

import numpy as np
from scipy.optimize import curve_fit, nnls

from aiperf.config.datasets import find_dataset
from aiperf.config.toml_text import as_toml
from aiperf.errors import RunDirectoryError, UsageError
from aiperf.network.json_files import read_architecture
from aiperf.network.operations import Operations, count
from aiperf.run_directory.paths import open_run
from aiperf.screening.fabric import typical_fit
from aiperf.screening.outcome import FILE, read_outcome
from analysis.reading.profile import Profile, read_profile
from analysis.reading.run_data import RunData, read_run
from analysis.report.devices import CPU
from analysis.report.intervals import Span
from analysis.report.phases import spans
from rehearsal.machine.file import MachineFile
from search_space.resnet import resnet


def is_screening(path: Path) -> bool:
    """True for the folder of a screening, and for its file."""
    return path.name == FILE or (path / FILE).is_file()


def of_screening(path: Path) -> dict[str, Any]:
    """The section `all_reduce`: within nodes if they have several accelerators, else between nodes.

    Raises UsageError of a screening without exchanges.
    """
    outcome = read_outcome(path)
    found = typical_fit(outcome.meetings, inside=True) or typical_fit(outcome.meetings, inside=False)
    if found is None:
        raise UsageError(f"{path}: nodes exchanged nothing in this screening: aiperf screen --fabric")
    return {"algorithm": "ring", "latency_s": found.latency_s, "bytes_per_s": found.bytes_per_s}


Sections = dict[str, dict[str, Any]]
"""Parts of a machine file."""

FEWEST_EPOCHS = 3
"""A learning curve has two unknowns."""

CLEARLY = 0.7
"""A time for each step must explain the epochs so much better than operations alone do: trials of
one size leave both open.
"""

UNSEEN = 1e-3
"""Share of an epoch that its operations take if they cannot be seen next to the steps."""

BETWEEN = ("search", "start", "build", "checkpoint", "idle")
"""Phases in which a replica does not get on with its trial."""


@dataclass(frozen=True, slots=True)
class TimedEpoch:
    """One epoch of a run, as its replica's phases have it."""

    cost: Operations
    images: int
    batch: int
    """Images of a step, of all ranks."""
    accelerators: int
    train_s: float
    evaluated: int
    evaluate_s: float


def measured(paths: Sequence[Path], machine: MachineFile | None = None) -> MachineFile:
    """A machine file whose figures are those of runs, profiles and screenings, else another file's.

    Raises RunDirectoryError for what is neither, and for runs in which nothing was trained.
    """
    document: Sections = machine.model_dump(exclude_unset=True) if machine is not None else {}
    screenings = [path for path in paths if is_screening(path)]
    others = [path for path in paths if path not in screenings]
    runs = [read_run(open_run(path)) for path in others if not path.is_file()]
    found: list[Sections] = [{"all_reduce": of_screening(path)} for path in screenings]
    found += [of_profile(read_profile(path)) for path in others if path.is_file()]
    found += [of_runs(runs)] if runs else []
    for sections in found:
        for name, settings in sections.items():
            document[name] = {**document.get(name, {}), **settings}
    source = ", ".join(str(path) for path in paths)
    document["machine"] = {"name": f"as measured in {paths[0].name}", **document.get("machine", {}), "source": source}
    return MachineFile.model_validate(document)


def text_of(machine: MachineFile) -> str:
    """The machine file as TOML, without what is left at its default."""
    sections = machine.model_dump(exclude_unset=True)
    return as_toml(
        {
            f"{section}.{name}": value
            for section, settings in sections.items()
            for name, value in settings.items()
            if value is not None
        }
    )


def of_profile(profile: Profile) -> Sections:
    """The rates of a rank in a profiled step, and in one batch that was evaluated after it.

    Raises RunDirectoryError if it profiles no training of AIPerf's.
    """
    settings, evaluation_s = profile.settings, profile.outside.get("evaluation")
    if settings.workload is not None or settings.size is not None:
        raise RunDirectoryError("a profile of a scientific network, or of another size, does not tell AIPerf's pace")
    dataset = find_dataset(settings.dataset, settings.data_dir)
    architecture = (
        read_architecture(Path(settings.architecture))
        if settings.architecture
        else resnet(50, dataset.image_size, dataset.classes)
    )
    step: dict[str, Any] = {"operations_per_s": profile.image_operations * profile.images_per_second}
    if evaluation_s:
        forward = count(architecture).operations.forward
        step["evaluation_operations_per_s"] = forward * settings.batch_size / evaluation_s
    return {"step": step, "node": {"accelerators": settings.ranks, "precision": settings.precision}}


def of_runs(runs: Sequence[RunData]) -> Sections:
    """Rates, starts and learning curve of runs on one kind of machine. Raises RunDirectoryError."""
    lives = [[list(spans(run, entry)) for entry in run.ledger.replicas.values()] for run in runs]
    epochs = [epoch for run, own in zip(runs, lives, strict=True) for epoch in timed_epochs(run, own)]
    if not epochs:
        names = ", ".join(str(run.paths.root) for run in runs)
        raise RunDirectoryError(f"{names}: no epoch was trained and timed")
    first, later = waits([life for own in lives for life in own])
    start = {"build_s": median(first)} if first else {}
    start |= {"trial_s": median(later)} if later else {}
    return {"step": _step(epochs), "node": _node(runs, epochs), "start": start, "curve": _curve(runs)}


def timed_epochs(run: RunData, lives: Iterable[Sequence[Span]]) -> Iterator[TimedEpoch]:
    """Completed epochs with the phases of their replicas.

    Trials whose phases do not fit them are left out.
    """
    batch = run.manifest.config.batch_size
    for life in lives:
        by_trial: dict[int, list[Span]] = {}
        for span in life:
            by_trial.setdefault(span.trial or 0, []).append(span)
        for trial, own in by_trial.items():
            known = run.ledger.trials.get(trial)
            built = known.built if known is not None else None
            ranks = len(built.devices) if built is not None else 1
            train = [span.end_s - span.begin_s for span in own if span.phase == "train"]
            evaluate = [span.end_s - span.begin_s for span in own if span.phase == "evaluate"]
            done = [epoch.body for epoch in run.work.epochs_of(trial)] if known is not None else []
            # The end of a run or a failure may leave one training phase whose epoch was not
            # completed. Any other difference means that phases and epochs cannot be paired.
            if known is None or len(evaluate) < len(done) or not len(done) <= len(train) <= len(done) + 1:
                continue
            chosen = known.started.hyperparameters if known is not None and known.started is not None else {}
            images = int(chosen.get("batch_size", batch)) * ranks
            for facts, train_s, evaluate_s in zip(done, train, evaluate, strict=False):
                yield TimedEpoch(
                    run.work.costs[trial],
                    facts.images_trained,
                    images,
                    ranks,
                    train_s,
                    facts.images_evaluated,
                    evaluate_s,
                )


def waits(lives: Iterable[Sequence[Span]]) -> tuple[list[float], list[float]]:
    """Seconds before the first step of replicas' first trials, and around their later ones."""
    first, later = list[float](), list[float]()
    for life in lives:
        lost: dict[int, float] = {}
        for span in life:
            if span.trial is not None and span.phase in BETWEEN:
                lost[span.trial] = lost.get(span.trial, 0.0) + span.end_s - span.begin_s
        seconds = [lost[trial] for trial in sorted(lost)]
        # The first trial is built while nothing trains; each later one during the trial before.
        first += seconds[:1]
        later += seconds[1:-1]  # the end of the run interrupts the last one
    return first, later


def _step(epochs: Sequence[TimedEpoch]) -> dict[str, float]:
    """Seconds of an epoch as operations at a rate and steps of a length: least squares."""
    operations = np.array([epoch.images * epoch.cost.total / epoch.accelerators for epoch in epochs], np.float64)
    steps = np.array([ceil(epoch.images / epoch.batch) for epoch in epochs], np.float64)
    seconds = np.array([epoch.train_s for epoch in epochs], np.float64)
    # An epoch of ImageNet has some 1e16 operations and 1e4 steps: scaled, both columns of the fit
    # have comparable sizes.
    scale = operations.max()
    per_scale, per_step = float(seconds.sum() / (operations.sum() / scale)), 0.0
    # Not plain least squares: a negative time per step or per operation is not a machine's.
    both, error_s = nnls(np.stack([operations / scale, steps], axis=1), seconds)
    # `nnls` gives the norm of its residual in seconds, hence the norm of the other fit's as well.
    if error_s < CLEARLY * np.linalg.norm(seconds - operations / scale * per_scale):
        per_scale, per_step = max(float(both[0]), UNSEEN * float(seconds.min())), float(both[1])
    predicted = operations / scale * per_scale + steps * per_step
    # Long and short epochs scatter by the same factor, not by the same seconds.
    ratios = np.log(seconds / predicted)
    rate = float(scale / per_scale)
    forward = sum(epoch.evaluated * epoch.cost.forward / epoch.accelerators for epoch in epochs)
    batches = sum(ceil(epoch.evaluated / epoch.batch) for epoch in epochs)
    # A batch is launched in an evaluation, too: what is left after the launches is arithmetic.
    left_s = sum(epoch.evaluate_s for epoch in epochs) - batches * per_step
    result = {"operations_per_s": rate, "seconds": per_step}
    result["spread"] = min(1.0, stdev(ratios.tolist())) if len(ratios) > 1 else 0.0
    if forward and left_s > 0:
        result["evaluation_operations_per_s"] = forward / left_s
    return result


def _node(runs: Sequence[RunData], epochs: Sequence[TimedEpoch]) -> dict[str, Any]:
    started = [trial.started for run in runs for trial in run.ledger.trials.values() if trial.started is not None]
    built = [trial.built for run in runs for trial in run.ledger.trials.values() if trial.built is not None]
    models = [node.cpu_model for run in runs for node in run.system.values() if node.cpu_model]
    names = [name for facts in built for name in facts.devices if name != CPU] or models
    memory = min((body.memory_bytes for body in started if body.memory_bytes), default=None)
    return {
        "accelerators": max(epoch.accelerators for epoch in epochs),
        **({"accelerator": names[0]} if names else {}),
        **({"memory_gib": memory / 2**30} if memory else {}),
        **({"precision": started[0].precision} if started else {}),
    }


def _curve(runs: Sequence[RunData]) -> dict[str, float]:
    """Fit best accuracy and epochs to 63 % of it, of all trainings; no result if they are few."""
    points = [
        (epoch.body.epoch, epoch.body.quality)
        for run in runs
        for trial in run.work.trials
        for epoch in run.work.epochs_of(trial)
        if epoch.body.quality is not None
    ]
    if len({epoch for epoch, _ in points}) < FEWEST_EPOCHS:
        return {}
    numbers, accuracies = (np.array(each, np.float64) for each in zip(*points, strict=True))

    def saturating(epoch: Any, best: float, epochs: float) -> Any:
        return best * (1 - np.exp(-epoch / epochs))

    bounds = ([1e-3, 1e-2], [0.999, 1e4])
    (best, epochs), _ = curve_fit(saturating, numbers, accuracies, p0=(fmean(accuracies), 3.0), bounds=bounds)
    # What the most accurate epoch makes of its training's limit, beyond that of all.
    gain = float(accuracies.max() / saturating(numbers[accuracies.argmax()], 1.0, epochs) - best)
    return {"best": float(best), "epochs": float(epochs), "gain": min(1.0, max(0.0, gain))}
