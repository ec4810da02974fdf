"""The trials of scientific workloads against one another: jobs, ends, terms and images."""

from __future__ import annotations

from collections.abc import Iterator

from aiperf.records.bodies import JobIssued, TrialClosed, WorkloadStarted
from aiperf.records.damage import Damage
from aiperf.records.lineage import epochs_of_training
from aiperf.seeds import fold_seed
from analysis.reading.integrity.view import Placed, RunView, TrialIndex
from analysis.reading.science.quality import reaches_target

SAME = (
    "networks", "training_passes", "evaluation_passes", "further_training", "further_evaluation", "target", "higher",
    "dataset", "generated", "fingerprint",
)  # fmt: skip
"""What all trials of a workload share."""

Model = tuple[str | None, int | None]
"""Workload and number of a model."""


def check_model_jobs(view: RunView) -> Iterator[Damage]:
    """Jobs out of order, of no model of the run, of one in training or done; other seeds."""
    last = 0
    running: dict[Model, int] = {}
    done: set[Model] = set()
    models: dict[int, Model] = {}
    for _, place in view.primary.events:
        body = place.body
        if isinstance(body, TrialClosed):
            model = models.get(body.trial, (None, None))
            if running.get(model) == body.trial:
                del running[model]
            done |= {model} if body.how == "completed" else set()
        elif isinstance(body, JobIssued):
            model = models[body.trial] = (body.workload, body.instance)
            if body.trial <= last:
                yield place.damage("conflict", f"job {body.trial} is issued after job {last}", "ids that grow")
            if model in done or model in running:
                state = "is complete" if model in done else f"is in training as trial {running[model]}"
                yield place.damage("conflict", f"job {body.trial} is {_named(model)}, which {state}", "another model")
            last, running[model] = max(last, body.trial), body.trial
            yield from _planned(place, body, view)
            yield from _resumed(place, body, models)
            yield from _seed(place, body, view)


def _named(model: Model) -> str:
    return f"model {model[1]} of {model[0]}"


def _planned(place: Placed[object], body: JobIssued, view: RunView) -> Iterator[Damage]:
    science = view.config.science
    if body.workload not in science.workloads or not 0 <= (body.instance or 0) < science.instances:
        expected = f"models 0 to {science.instances - 1} of {', '.join(science.workloads)}"
        yield place.damage("conflict", f"job {body.trial} is {_named((body.workload, body.instance))}", expected)


def _resumed(place: Placed[object], body: JobIssued, models: dict[int, Model]) -> Iterator[Damage]:
    if body.resumes is None:
        return
    if body.resumes >= body.trial or models.get(body.resumes) != (body.workload, body.instance):
        found = f"job {body.trial} resumes trial {body.resumes}"
        yield place.damage("conflict", found, f"an earlier trial of {_named((body.workload, body.instance))}")


def _seed(place: Placed[object], body: JobIssued, view: RunView) -> Iterator[Damage]:
    """The seed of a model is folded from the run's."""
    expected = fold_seed(view.config.run.seed, body.workload or "", body.instance or 0, 0)
    if body.seed != expected:
        yield place.damage("conflict", f"job {body.trial} has seed {body.seed}", f"{expected}, of its model")


def check_model_ends(view: RunView) -> Iterator[Damage]:
    """Trials that go on after their target, or end before it; resumptions that skip epochs."""
    for trial, index in sorted(view.models.items()):
        yield from _beginning(view, trial, index)
        own = sorted(view.ledger.trials[trial].epochs.items())
        reached = [number for number, item in own if reaches_target(item.body, index.started.body)]
        at_quality = view.config.science.stop == "quality"
        place = index.ended or index.failed or index.first_epoch
        if at_quality and reached and own[-1][0] > reached[0] and place is not None:
            found = f"trial {trial} trains beyond epoch {reached[0]}, which reached the target"
            yield place.damage("bounds", found, "its end there")
        yield from _end(index, max(epochs_of_training(view.ledger, trial), default=0), bool(reached) and at_quality)


def _beginning(view: RunView, trial: int, index: TrialIndex[WorkloadStarted]) -> Iterator[Damage]:
    """A resumed training begins at most one epoch after the last one that was kept."""
    resumes, first = index.started.body.resumes, index.first_epoch
    if resumes is None or first is None:
        return
    kept = max(epochs_of_training(view.ledger, resumes), default=0)
    if not 1 <= first.body.epoch <= kept + 1:
        yield first.damage("bounds", f"trial {trial} begins with epoch {first.body.epoch}", f"at most {kept + 1}")


def _end(index: TrialIndex[WorkloadStarted], last: int, reached: bool) -> Iterator[Damage]:
    """A training ends by itself at its target, or after its last epoch."""
    if index.ended is None or index.ended.body.reason == "stopped":
        return
    body, reason = index.started.body, index.ended.body.reason
    if not reached and (reason == "early_stop" or last != body.epochs):
        found = f"trial {body.trial} ends ({reason}) after epoch {last} without its target"
        yield index.ended.damage("bounds", found, f"{body.epochs} epochs")


def check_same_terms(view: RunView) -> Iterator[Damage]:
    """Trials of one workload with other networks, passes, targets or data than the first one."""
    first: dict[str, WorkloadStarted] = {}
    for trial, index in sorted(view.models.items()):
        body = index.started.body
        known = first.setdefault(body.workload, body)
        for name in SAME:
            found, expected = getattr(body, name), getattr(known, name)
            if found != expected:
                shown = f"trial {trial} of {body.workload} has the {name.replace('_', ' ')} {found}"
                yield index.started.damage("conflict", shown, f"{expected}, as trial {known.trial}")


def check_workload_images(view: RunView) -> Iterator[Damage]:
    """Epochs of one workload with other numbers of images.

    An epoch evaluates the validation examples, or none; one with measures of training examples as
    many of them, too, or all if there are fewer.
    """
    for _, places in sorted(view.of_workload.items()):
        trained = places[0].body.images_trained
        validated = min((place.body.images_validated for place in places if place.body.images_evaluated), default=0)
        for place in places:
            body = place.body
            # Groups other than 0 go at their own pace: they train any number of images meanwhile.
            alone = view.config.training.groups == 1
            known = trained if alone else max(place.body.images_trained for place in places)
            more = min(known, validated) if body.training_measures is not None else 0
            other = body.images_trained != trained and alone
            if other or body.images_evaluated not in (0, validated + more):
                shown = f"{body.images_trained} images trained and {body.images_evaluated} evaluated in an epoch"
                yield place.damage("bounds", shown, f"{trained}, and {validated + more}")
