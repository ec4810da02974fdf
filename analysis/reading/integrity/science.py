"""Checks of scientific workloads: each trial against its job, and all against one another."""

from collections.abc import Iterator
from math import isclose, isfinite

from aiperf.records.bodies import EpochCompleted, JobIssued, TrialClosed, WorkloadStarted
from aiperf.records.damage import Damage
from aiperf.records.lineage import epochs_of_training
from aiperf.seeds import fold_seed
from analysis.reading.integrity.bounds import check_correct, check_finite, check_open_epochs, check_order, check_waits
from analysis.reading.integrity.evidence import EpochRows, named_rows
from analysis.reading.integrity.facts import SIMULATED, check_built
from analysis.reading.integrity.jobs import check_issued
from analysis.reading.integrity.traces import Traces
from analysis.reading.integrity.view import Placed, RunView, TrialTrace
from analysis.reading.science import measured_of, reaches_target

Trace = TrialTrace[WorkloadStarted]

SAME = 1e-9
"""Relative difference between a quality and the measure that it is."""


def check_model_start(trace: Trace, view: RunView) -> Iterator[Damage]:
    """A training that is not of a job that the primary issued to this replica before."""
    place, body = trace.started, trace.started.body
    for job in check_issued(trace, view):
        if isinstance(job, Damage):
            yield job
        elif _terms(body) != _terms(job.body):
            yield place.damage("conflict", f"trial {body.trial} is {_shown(body)}", f"{_shown(job.body)}, as issued")


def _terms(body: WorkloadStarted | JobIssued) -> tuple[object, ...]:
    return body.workload, body.instance, body.resumes


def _shown(body: WorkloadStarted | JobIssued) -> str:
    resumes = "" if body.resumes is None else f", resuming {body.resumes}"
    return f"model {body.instance} of {body.workload}{resumes}"


def check_model_facts(trace: Trace, view: RunView) -> Iterator[Damage]:
    """A start, or a built model, of another size, trainer or framework than the run's."""
    place, body, config = trace.started, trace.started.body, view.config
    pairs: tuple[tuple[str, str, str], ...] = (
        ("size", body.size, config.science.size),
        ("trainer", body.trainer, config.training.trainer),
        ("framework", body.framework, config.training.framework),
    )
    for name, found, expected in pairs:
        if found != expected:
            yield place.damage("facts", f"trial {body.trial} has the {name} {found}", f"{expected}, as run.json says")
    if config.training.precision not in (None, body.precision):
        found = f"trial {body.trial} has the precision {body.precision}"
        yield place.damage("facts", found, f"{config.training.precision}, as run.json says")
    if not body.target or not all(map(isfinite, body.target.values())):
        yield place.damage("bounds", f"trial {body.trial} has the target {body.target}", "values of measures")
    for built in trace.built:
        yield from check_built(built, body.networks.values(), body.precision, view)


def check_model_training(traces: Traces, view: RunView) -> Iterator[Damage]:
    """Epochs that do not follow each other, or with values that cannot be; progress that falls."""
    yield from check_order(traces)
    for trace in traces.trials:
        body = trace.started.body
        for place in trace.epochs:
            view.of_workload.setdefault(body.workload, []).append(place)
            if place.body.epoch > body.epochs:
                yield place.damage("bounds", f"epoch {place.body.epoch}", f"at most {body.epochs}, as planned")
    yield from check_finite(traces)
    yield from check_correct(traces)
    yield from check_waits(traces)
    for trace in traces.trials:
        for place in trace.epochs:
            yield from _measures(place, trace.started.body)
    yield from check_open_epochs(traces)


SHARES = ("accuracy", "auc", "map@", "signal_share", "selection_share")
"""Beginnings of the names of measures that are between 0 and 1."""


def _measures(place: Placed[EpochCompleted], started: WorkloadStarted) -> Iterator[Damage]:
    """Measures that are missing or cannot be, and a quality that is another one."""
    epoch = place.body
    if epoch.correct is not None:
        # It would be the quality of an epoch that leaves out the measure of its target.
        yield place.damage("bounds", f"{epoch.correct} images correct", "measures alone")
    for kind in (epoch.measures or {}, epoch.training_measures or {}, epoch.test_measures or {}):
        for name, value in kind.items():
            if not isfinite(value):
                yield place.damage("bounds", f"the measure {name} is {value}", "a finite number")
            elif name.startswith(SHARES) and not 0 <= value <= 1:
                yield place.damage("bounds", f"the measure {name} is {value}", "0 to 1")
    if epoch.images_evaluated <= 0 or not started.target:
        return
    missing = [name for name, value in measured_of(epoch, started).items() if value is None]
    if missing:
        yield place.damage("bounds", f"epoch {epoch.epoch} has no {', '.join(missing)}", "every measure of the target")
    yield from _final_measures(place, started)
    first = next(iter(started.target))
    measure = (epoch.measures or {}).get(first)
    if measure is not None and epoch.measured_quality is not None:
        # A quality is higher for better models, so measures such as losses change their sign.
        expected = measure if started.higher else -measure
        if not isclose(epoch.measured_quality, expected, rel_tol=SAME, abs_tol=SAME):
            yield place.damage("bounds", f"a quality of {epoch.measured_quality}", f"{expected}, by the {first}")


def _final_measures(place: Placed[EpochCompleted], started: WorkloadStarted) -> Iterator[Damage]:
    """Measures of training or test examples before the end, or of no test examples."""
    epoch = place.body
    for kind, values in (("training", epoch.training_measures), ("test", epoch.test_measures)):
        if values is not None and epoch.epoch != started.epochs and not reaches_target(epoch, started):
            found = f"measures of {kind} examples in epoch {epoch.epoch} of {started.epochs}"
            yield place.damage("bounds", found, "none before the end of the training")
    if (epoch.test_measures is None) != (not epoch.test_images):
        yield place.damage("bounds", f"{epoch.test_images or 0} test examples", "measures of test examples, or neither")


def rows_of_model(trace: Trace, view: RunView) -> Iterator[EpochRows]:
    """The rows that a trial's records name; a task may have several to a step."""
    columns = named_rows(trace.completed)
    if len(columns) and view.config.training.trainer != SIMULATED:
        yield EpochRows(trace.trial, None, trace.started.file, columns)


SHARED = (
    "networks",
    "training_passes",
    "evaluation_passes",
    "further_training",
    "further_evaluation",
    "target",
    "higher",
    "dataset",
    "generated",
    "fingerprint",
)
"""Fields in which all trials of a workload agree."""

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
    """Trials that continue after their target, or end before it; resumptions that skip epochs."""
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


def _beginning(view: RunView, trial: int, index: TrialTrace[WorkloadStarted]) -> Iterator[Damage]:
    """A resumed training begins at most one epoch after the last one that was kept."""
    resumes, first = index.started.body.resumes, index.first_epoch
    if resumes is None or first is None:
        return
    kept = max(epochs_of_training(view.ledger, resumes), default=0)
    if not 1 <= first.body.epoch <= kept + 1:
        yield first.damage("bounds", f"trial {trial} begins with epoch {first.body.epoch}", f"at most {kept + 1}")


def _end(index: TrialTrace[WorkloadStarted], last: int, reached: bool) -> Iterator[Damage]:
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
        for name in SHARED:
            found, expected = getattr(body, name), getattr(known, name)
            if found != expected:
                shown = f"trial {trial} of {body.workload} has the {name.replace('_', ' ')} {found}"
                yield index.started.damage("conflict", shown, f"{expected}, as trial {known.trial}")


def check_workload_images(view: RunView) -> Iterator[Damage]:
    """Epochs of one workload with other numbers of images.

    An epoch evaluates the validation examples, or none; one with measures of training examples as
    many of them, too, or all if there are fewer; in groups, as many as one of them says.
    """
    # Groups other than 0 go at their own pace: they train any number of images meanwhile.
    alone = view.config.training.groups == 1
    for _, places in sorted(view.of_workload.items()):
        trained = places[0].body.images_trained
        validated = min((place.body.images_validated for place in places if place.body.images_evaluated), default=0)
        known = trained if alone else max(place.body.images_sampled for place in places)
        for place in places:
            body = place.body
            more = min(known, validated) if body.training_measures is not None else 0
            other = body.images_trained != trained and alone
            if other or body.images_evaluated not in (0, validated + more):
                shown = f"{body.images_trained} images trained and {body.images_evaluated} evaluated in an epoch"
                yield place.damage("bounds", shown, f"{trained}, and {validated + more}")
            if body.sampled_images not in (None, more):
                shown = f"{body.sampled_images} training examples sampled of {body.images_evaluated} evaluated images"
                yield place.damage("bounds", shown, str(more))
        tests = [place for place in places if place.body.test_images]
        for place in tests:
            if place.body.test_images != tests[0].body.test_images:
                yield place.damage("bounds", f"{place.body.test_images} test examples", f"{tests[0].body.test_images}")
