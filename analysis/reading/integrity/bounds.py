"""Values of a trial's epochs and progress that cannot be, and ends that do not follow from them.

A trial ends by its round's epochs or patience, with the predicted accuracy of warm-up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any

from aiperf.config.datasets import IMAGENET, IMAGES
from aiperf.records.bodies import EpochCompleted, ProgressMade, TrialEnded, TrialStarted
from aiperf.records.damage import Damage
from aiperf.records.decoding.epochs import EPOCH
from aiperf.records.lineage import epochs_of_training, qualities_of_training
from aiperf.rules.prediction import NEARLY, nearly_predicted, predicted_accuracy
from aiperf.rules.rounds import RoundPlan, epoch_out_of_patience, learning_rate, out_of_patience, plan_round
from analysis.reading.integrity.heard.placed import Placed
from analysis.reading.integrity.traces import TrialTrace
from analysis.reading.integrity.view import RunView, TrialIndex

if TYPE_CHECKING:
    from analysis.reading.workers import Workers

RATE_TOLERANCE = 1e-4
"""Relative to the first learning rate: trainers compute the schedule in float32."""

PREDICTION_TOLERANCE = 1e-4
"""The fit is a minimum, found to about 1e-6 by another machine's linear algebra."""

CHUNK = 64
"""Predictions that are recomputed in one task."""


def check_training(trace: TrialTrace[TrialStarted], view: RunView) -> Iterator[Damage]:
    """Epochs that do not follow each other, or with values that cannot be; progress that falls."""
    yield from check_order(trace)
    for place in trace.training:
        yield from _images(place, view)
        if isinstance(place.body, EpochCompleted):
            yield from _epoch(place, place.body, trace.started.body, view)
    yield from check_open_epoch(trace)


def check_order(trace: TrialTrace[Any]) -> Iterator[Damage]:
    """Epochs that do not follow each other, progress that falls, and times that do."""
    last = _epochs_before(trace)
    position = (0, 0, 0)
    time_ms: int | None = None
    for place in trace.training:
        body = place.body
        if time_ms is not None and place.time_ms < time_ms:
            found = f"trial {trace.trial} is {time_ms - place.time_ms} ms earlier than in the record before"
            yield place.damage("time", found, "one clock for all of its ranks")
        time_ms = place.time_ms
        expected = last + 1 if last is not None else body.epoch
        reached = (body.epoch, body.images_trained, body.images_evaluated)
        if body.epoch != expected:
            yield place.damage("bounds", f"epoch {body.epoch} of trial {trace.trial}", f"epoch {expected}")
        elif reached < position:
            yield place.damage("bounds", f"progress of trial {trace.trial} falls", f"at least {_shown(position)}")
        position = max(position, reached)
        last = body.epoch - 1
        if isinstance(body, EpochCompleted):
            last = body.epoch
            position = (last + 1, 0, 0)


def check_open_epoch(trace: TrialTrace[Any]) -> Iterator[Damage]:
    """Progress in an epoch behind the last one that was planned, or that ended by itself."""
    place = trace.training[-1] if trace.training else None
    if place is None or isinstance(place.body, EpochCompleted):
        return
    planned = trace.started.body.epochs
    if place.body.epoch > planned:
        yield place.damage("bounds", f"progress in epoch {place.body.epoch}", f"at most {planned}, as planned")
    elif trace.ended is not None and trace.ended.body.reason != "stopped":
        found = f"progress in epoch {place.body.epoch} of trial {trace.trial}, which then ended by itself"
        yield place.damage("bounds", found, "an end after a completed epoch")


def _epochs_before(trace: TrialTrace[Any]) -> int | None:
    """Epochs before those to look at; None if the lineage of a resumed trial decides."""
    if len(trace.completed):
        return int(trace.completed.column(EPOCH)[-1])
    return 0 if trace.started.body.resumes is None else None


def _shown(position: tuple[int, int, int]) -> str:
    epoch, trained, evaluated = position
    return f"epoch {epoch}, {trained} images trained, {evaluated} evaluated"


def _images(place: Placed[ProgressMade | EpochCompleted], view: RunView) -> Iterator[Damage]:
    body = place.body
    limit = images_of_epoch(view)
    found = (body.images_trained, body.images_evaluated)
    if limit is None and isinstance(body, EpochCompleted):
        limit = view.epoch_images = found
    if limit is not None and view.config.training.groups > 1:
        # Groups go at their own pace: those other than 0 train any number of images meanwhile, and
        # the sums over the training are compared (`integrity.hybrid`).
        limit = max(0, body.images_trained), limit[1]
    if isinstance(body, EpochCompleted):
        if found != limit and limit is not None:
            shown = f"{found[0]} images trained and {found[1]} evaluated in an epoch"
            yield place.damage("bounds", shown, f"{limit[0]} and {limit[1]}")
    elif min(found) < 0 or (limit is not None and (found[0] > limit[0] or found[1] > limit[1])):
        most = f"at most {limit[0]} and {limit[1]}" if limit is not None else "none below 0"
        yield place.damage("bounds", f"{found[0]} images trained and {found[1]} evaluated of an epoch", most)


def images_of_epoch(view: RunView) -> tuple[int, int] | None:
    """Images trained and evaluated in an epoch; those of the run's first one if only files know."""
    if view.epoch_images is None and view.config.run.dataset != IMAGES:
        dataset = view.config.dataset
        view.epoch_images = dataset.train_images, dataset.validation_images
    return view.epoch_images


def _epoch(place: Placed[ProgressMade | EpochCompleted], epoch: EpochCompleted, started: TrialStarted,
           view: RunView) -> Iterator[Damage]:  # fmt: skip
    if epoch.epoch > started.epochs:
        yield place.damage("bounds", f"epoch {epoch.epoch}", f"at most {started.epochs}, as planned")
    if epoch.correct is not None and not 0 <= epoch.correct <= epoch.images_evaluated:
        found = f"{epoch.correct} of {epoch.images_evaluated} evaluated images correct"
        yield place.damage("bounds", found, "0 to all of them")
    yield from check_finite(place, epoch)
    # It would take the place of the accuracy in patience, prediction and search.
    if epoch.measured_quality is not None and (epoch.correct is not None or view.config.run.dataset == IMAGENET.name):
        yield place.damage("bounds", f"a quality of {epoch.measured_quality}", "none but the accuracy")
    yield from _learning_rate(place, epoch, started, view)


def check_finite(place: Placed[Any], epoch: EpochCompleted) -> Iterator[Damage]:
    """Losses and a quality that are not numbers."""
    if isfinite(epoch.loss) and isfinite(epoch.validation_loss) and epoch.measured_quality is None:
        return
    values = {"loss": epoch.loss, "validation loss": epoch.validation_loss, "quality": epoch.measured_quality}
    for name, value in values.items():
        if value is not None and not isfinite(value):
            yield place.damage("bounds", f"the {name} is {value}", "a finite number")


def _learning_rate(place: Placed[ProgressMade | EpochCompleted], epoch: EpochCompleted, started: TrialStarted,
                   view: RunView) -> Iterator[Damage]:  # fmt: skip
    """Learning rates off the schedule: linear from the first one to 0 (paper, Table 4)."""
    first = started.hyperparameters.get("learning_rate", view.config.training.learning_rate)
    if isinstance(first, str):
        yield place.damage("bounds", f"a first learning rate of {first!r}", "a number")
        return
    due = learning_rate(first, epoch.epoch - 1, view.max_epochs)
    slack = RATE_TOLERANCE * first
    if view.config.training.groups > 1:
        # The schedule counts the images of all groups, with a lower rate (`rules.asynchrony`).
        if not 0 <= epoch.learning_rate <= first + slack:
            yield place.damage("bounds", f"a learning rate of {epoch.learning_rate:g}", f"at most {first:g}")
        return
    # Earlier versions counted steps: those whose gradients overflowed in float16 did not move the
    # schedule on.
    most = first if started.precision == "mixed_float16" else due
    if not due - slack <= epoch.learning_rate <= most + slack:
        yield place.damage("bounds", f"a learning rate of {epoch.learning_rate:g} in epoch {epoch.epoch}", f"{due:g}")


def check_ends(view: RunView) -> Iterator[Damage]:
    """Trials that ended before or after their round's epochs and patience."""
    for trial, index in sorted(view.trials.items()):
        plan = plan_round(max(1, index.started.body.round), view.max_epochs)
        qualities = _qualities(view, trial)
        yield from _beginning(view, trial, index)
        yield from _end(index, qualities, plan)


def _qualities(view: RunView, trial: int) -> dict[int, float]:
    """The quality after each epoch, with those of the trials that this one resumes."""
    return qualities_of_training(view.ledger, trial)


def _beginning(view: RunView, trial: int, index: TrialIndex[TrialStarted]) -> Iterator[Damage]:
    """A resumed training begins at most one epoch after the last one that was kept."""
    resumes = index.started.body.resumes
    if resumes is None:
        return
    first = index.first_epoch
    before = view.trials.get(resumes)
    if before is None:
        if view.primary.issued.get(resumes) is None:
            yield index.started.damage("conflict", f"trial {trial} resumes trial {resumes}", "a trial of this run")
    elif _training(before) != _training(index):
        found = f"trial {trial} trains another architecture than trial {resumes}, which it resumes"
        yield index.started.damage("conflict", found, "the same, with the same hyperparameters")
    if first is not None:
        kept = max(epochs_of_training(view.ledger, resumes), default=0)
        if not 1 <= first.body.epoch <= kept + 1:
            yield first.damage("bounds", f"trial {trial} begins with epoch {first.body.epoch}", f"at most {kept + 1}")


def _training(index: TrialIndex[TrialStarted]) -> tuple[object, ...]:
    body = index.started.body
    return body.architecture, body.parent, body.morphs, body.hyperparameters


def _end(index: TrialIndex[TrialStarted], qualities: dict[int, float], plan: RoundPlan) -> Iterator[Damage]:
    values = list(qualities.values())
    trial = index.started.body.trial
    early = epoch_out_of_patience(values[:-1], plan.patience)
    own_first = index.first_number
    if early is not None and own_first is not None and list(qualities)[early] >= own_first:
        place = index.ended or index.failed or index.first_epoch
        assert place is not None
        found = f"trial {trial} trains beyond epoch {list(qualities)[early - 1]}"
        yield place.damage("bounds", found, "its end there, by patience")
    if index.ended is None:
        return
    reason, last = index.ended.body.reason, max(qualities, default=0)
    if reason == "completed" and last != plan.epochs:
        yield index.ended.damage("bounds", f"trial {trial} is completed after epoch {last}", f"epoch {plan.epochs}")
    if reason == "early_stop" and not out_of_patience(values, plan.patience):
        found = f"trial {trial} stops early after epoch {last}"
        yield index.ended.damage("bounds", found, f"{plan.patience} epochs without an improvement")


@dataclass(frozen=True, slots=True)
class _Prediction:
    place: Placed[TrialEnded]
    qualities: dict[int, float]


def check_predictions(view: RunView, workers: Workers) -> Iterator[Damage]:
    """Predicted accuracies that are not those of the trial's epochs."""
    open_: list[_Prediction] = []
    for trial, index in sorted(view.trials.items()):
        if index.ended is None:
            continue
        body = index.ended.body
        predicts = plan_round(max(1, index.started.body.round), view.max_epochs).predicts
        if body.predicted_accuracy is not None and (not predicts or body.reason == "stopped"):
            yield index.ended.damage("bounds", f"trial {trial} has a predicted accuracy", "one in warm-up rounds only")
        elif predicts and body.reason != "stopped":
            open_.append(_Prediction(index.ended, _qualities(view, trial)))
    open_ = list(_in_doubt(open_, view.max_epochs))
    chunks = [open_[start : start + CHUNK] for start in range(0, len(open_), CHUNK)]
    futures = [workers.submit(_predict_all, [item.qualities for item in chunk], view.max_epochs) for chunk in chunks]
    for chunk, future in zip(chunks, futures, strict=True):
        for item, expected in zip(chunk, future.result(), strict=True):
            found = item.place.body.predicted_accuracy
            if not _near(found, expected):
                yield item.place.damage("bounds", f"a predicted accuracy of {found}", f"{expected} from its epochs")


def _in_doubt(items: Sequence[_Prediction], max_epochs: int) -> Iterator[_Prediction]:
    """Predictions that a look at all together does not find to be near those of their epochs."""
    expected = nearly_predicted([item.qualities for item in items], max_epochs)
    for item, value in zip(items, expected, strict=True):
        found = item.place.body.predicted_accuracy
        if found is None or not abs(found - value) <= PREDICTION_TOLERANCE - NEARLY:  # also of a NaN
            yield item


def _near(found: float | None, expected: float | None) -> bool:
    if found is None or expected is None:
        return found is expected
    return abs(found - expected) <= PREDICTION_TOLERANCE


def _predict_all(qualities: list[dict[int, float]], max_epochs: int) -> list[float | None]:
    return [predicted_accuracy(item, max_epochs) for item in qualities]
