"""Values of a trial's epochs and progress that cannot be, and ends that do not follow from them.

A trial ends by its round's epochs or patience, with the predicted accuracy of warm-up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from aiperf.config.datasets import IMAGENET, IMAGES
from aiperf.facts import UNCLASSIFIED
from aiperf.records.bodies import TrialEnded, TrialStarted
from aiperf.records.columns import (
    CORRECT,
    CORRECT_TRAINED,
    EPOCH,
    EVALUATED,
    EXCHANGE,
    INPUT,
    PLACE,
    TIME,
    TRAINED,
    TRIAL,
    Epochs,
    Marks,
    Numbers,
    places_of,
)
from aiperf.records.damage import Damage, DamageKind
from aiperf.records.lineage import epochs_of_training, qualities_of_training
from aiperf.rules.prediction import NEARLY, nearly_predicted, predicted_accuracy
from aiperf.rules.rounds import RoundPlan, epoch_out_of_patience, learning_rate, out_of_patience, plan_round
from analysis.reading.integrity.traces import COMPLETES, Traces
from analysis.reading.integrity.view import Placed, RunView, TrialTrace

if TYPE_CHECKING:
    from analysis.reading.workers import Workers

RATE_TOLERANCE = 1e-4
"""Relative to the first learning rate: trainers compute the schedule in float32."""

PREDICTION_TOLERANCE = 1e-4
"""The fit is a minimum, found to about 1e-6 by another machine's linear algebra."""

TIMER_MS = 1_000
"""Tolerance by which measured seconds may exceed the time that they were measured in."""

CHUNK = 64
"""Predictions that are recomputed in one task."""


def check_training(traces: Traces, view: RunView) -> Iterator[Damage]:
    """Epochs that do not follow each other, or with values that cannot be; progress that falls."""
    yield from check_order(traces)
    yield from _images(traces, view)
    yield from _epochs(traces, view)
    yield from check_waits(traces)
    yield from check_open_epochs(traces)


def _at(traces: Traces, rows: Numbers, row: int, kind: DamageKind, found: str, expected: str) -> Damage:
    """A damage at a row of steps or epochs."""
    return Damage(traces.file, int(rows[row, PLACE]) + 1, kind, found, expected)


def check_order(traces: Traces) -> Iterator[Damage]:
    """Epochs that do not follow each other, progress that falls, and times that do."""
    rows, of = traces.steps, traces.trial_of
    if not len(rows):
        return
    is_first = np.append(True, np.diff(of) != 0)
    is_new = np.append(True, is_first[1:] | (rows[:-1, COMPLETES] == 1))
    later = np.where(is_first, 0, np.append(0, rows[:-1, TIME] - rows[1:, TIME]))
    for row in places_of(later > 0):
        found = f"trial {rows[row, TRIAL]} is {later[row]} ms earlier than in the record before"
        yield _at(traces, rows, row, "time", found, "one clock for all of its ranks")
    # The lineage of a resumed trial decides with which epoch it begins (`check_ends`).
    resumed = np.array([trace.started.body.resumes is not None for trace in traces.trials], bool)[of]
    begins = np.where(resumed, rows[:, EPOCH], 1)
    follows = np.append(0, rows[:-1, EPOCH] + rows[:-1, COMPLETES])
    expected = np.where(is_first, begins, follows)
    # A position is compared with the furthest one so far, not with its neighbour: after a fall,
    # every report below the furthest position is a damage, and not the first one alone.
    reached, before = rows[:, EPOCH : EVALUATED + 1], _positions_before(rows, is_first, is_new)
    for row in places_of((rows[:, EPOCH] != expected) | _less(reached, before)):
        if rows[row, EPOCH] != expected[row]:
            found = f"epoch {rows[row, EPOCH]} of trial {rows[row, TRIAL]}"
            yield _at(traces, rows, row, "bounds", found, f"epoch {expected[row]}")
        else:
            epoch, trained, evaluated = before[row].tolist()
            yield _at(
                traces,
                rows,
                row,
                "bounds",
                f"progress of trial {rows[row, TRIAL]} falls",
                f"at least epoch {epoch}, {trained} images trained, {evaluated} evaluated",
            )


def _positions_before(rows: Numbers, is_first: Marks, is_new: Marks) -> Numbers:
    """The furthest position (epoch, images trained and evaluated) of a training before each row.

    Behind a completed epoch it is the beginning of the next one, whatever came before.
    """
    start = np.zeros((len(rows), 3), np.int64)
    start[1:, 0] = np.where(is_first[1:], 0, rows[:-1, EPOCH] + 1)
    before = np.where(is_new[:, None], start, np.roll(rows[:, EPOCH : EVALUATED + 1], 1, axis=0))
    # A running maximum of positions is one of their ranks, lifted by the part of the file.
    positions, ranks = np.unique(before, axis=0, return_inverse=True)
    # `np.unique` sorts rows by their columns, so a rank is an order of positions. Each part is
    # lifted above all ranks of the one before: the maximum begins anew there.
    part = np.cumsum(is_new) * len(rows)
    return np.asarray(positions[np.maximum.accumulate(ranks.reshape(-1) + part) - part], np.int64)


def _less(one: Numbers, other: Numbers) -> Marks:
    """True where a position is before another, column by column."""
    found = np.zeros(len(one), bool)
    # From the last criterion to the first: the first column that differs decides.
    for column in (2, 1, 0):
        found = (one[:, column] < other[:, column]) | ((one[:, column] == other[:, column]) & found)
    return found


def check_open_epochs(traces: Traces) -> Iterator[Damage]:
    """Progress in an epoch behind the last one that was planned, or that ended by itself."""
    rows, of = traces.steps, traces.trial_of
    is_last = np.append(np.diff(of) != 0, True) if len(of) else np.zeros(0, bool)
    for row in places_of(is_last & (rows[:, COMPLETES] == 0)):
        trace, epoch = traces.trials[of[row]], rows[row, EPOCH]
        planned = trace.started.body.epochs
        if epoch > planned:
            found = f"progress in epoch {epoch}"
            yield _at(traces, rows, row, "bounds", found, f"at most {planned}, as planned")
        elif trace.ended is not None and trace.ended.body.reason != "stopped":
            found = f"progress in epoch {epoch} of trial {trace.trial}, which then ended by itself"
            yield _at(traces, rows, row, "bounds", found, "an end after a completed epoch")


def _images(traces: Traces, view: RunView) -> Iterator[Damage]:
    """Images of epochs that are not those of the data set, and progress beyond them."""
    rows, completes = traces.steps, traces.steps[:, COMPLETES] == 1
    limit, since = images_of_epoch(view), 0
    if limit is None and completes.any():
        since = int(np.argmax(completes))
        limit = view.epoch_images = int(rows[since, TRAINED]), int(rows[since, EVALUATED])
    if limit is None:
        return
    trained, evaluated = rows[:, TRAINED], rows[:, EVALUATED]
    # Groups go at their own pace: those other than 0 train any number of images meanwhile, and the
    # sums over the training are compared (`integrity.hybrid`).
    most = trained if view.config.training.groups > 1 else np.full(len(rows), limit[0])
    wrong = completes & ((trained != most) | (evaluated != limit[1]))
    wrong |= ~completes & ((trained > most) | (evaluated > limit[1]))
    wrong[:since] = False
    for row in places_of(wrong):
        found, expected = f"{trained[row]} images trained and {evaluated[row]} evaluated", f"{most[row]} and {limit[1]}"
        if completes[row]:
            yield _at(traces, rows, row, "bounds", f"{found} in an epoch", expected)
        else:
            yield _at(traces, rows, row, "bounds", f"{found} of an epoch", f"at most {expected}")


def images_of_epoch(view: RunView) -> tuple[int, int] | None:
    """Images trained and evaluated in an epoch; those of the run's first one if only files know."""
    if view.epoch_images is None and view.config.run.dataset != IMAGES:
        dataset = view.config.dataset
        view.epoch_images = dataset.train_images, dataset.validation_images
    return view.epoch_images


def _epochs(traces: Traces, view: RunView) -> Iterator[Damage]:
    """Values of epochs that cannot be, and learning rates off the schedule."""
    epochs, rows = traces.epochs, traces.epochs.whole
    # The rows of steps that complete an epoch are the rows of epochs, in one order.
    of = traces.trial_of[traces.steps[:, COMPLETES] == 1]
    starts = [trace.started.body for trace in traces.trials]
    planned = np.array([start.epochs for start in starts], np.int64)[of]
    for row in places_of(rows[:, EPOCH] > planned):
        yield _at(traces, rows, row, "bounds", f"epoch {rows[row, EPOCH]}", f"at most {planned[row]}, as planned")
    yield from check_correct(traces)
    yield from check_finite(traces)
    imagenet = view.config.run.dataset == IMAGENET.name
    for row, quality in qualities_of(epochs):
        # It would take the place of the accuracy in patience, prediction and search.
        if rows[row, CORRECT] != UNCLASSIFIED or imagenet:
            yield _at(traces, rows, row, "bounds", f"a quality of {quality}", "none but the accuracy")
    yield from _learning_rates(traces, starts, of, view)


def check_correct(traces: Traces) -> Iterator[Damage]:
    """More right answers than images."""
    rows = traces.epochs.whole
    for correct, of_images, which in ((CORRECT, EVALUATED, "evaluated"), (CORRECT_TRAINED, TRAINED, "trained")):
        for row in places_of(rows[:, correct] > rows[:, of_images]):
            found = f"{rows[row, correct]} of {rows[row, of_images]} {which} images correct"
            yield _at(traces, rows, row, "bounds", found, "0 to all of them")


def check_waits(traces: Traces) -> Iterator[Damage]:
    """Trainings that waited for images, or exchanged gradients, for longer than they lasted."""
    rows, measured = traces.epochs.whole, traces.epochs.measured
    of = traces.trial_of[traces.steps[:, COMPLETES] == 1]
    is_first = np.append(True, np.diff(of) != 0) if len(of) else np.zeros(0, bool)
    started_ms = np.array([trace.started.time_ms for trace in traces.trials], np.int64)[of]
    passed_s = (rows[:, TIME] - started_ms + TIMER_MS) / 1000
    for column, what in ((INPUT, "waiting for images"), (EXCHANGE, "in all-reduce")):
        seconds = np.nan_to_num(measured[:, column])
        total_s = np.cumsum(seconds)
        # The sum before the first epoch of each trial is that of the trials before it.
        before_s = np.where(is_first, total_s - seconds, 0.0)
        total_s -= np.maximum.accumulate(before_s) if len(rows) else before_s
        for row in places_of(total_s > passed_s):
            found = f"{total_s[row]:.1f} s {what} by epoch {rows[row, EPOCH]} of trial {rows[row, TRIAL]}"
            yield _at(traces, rows, row, "time", found, f"at most {passed_s[row]:.1f} s, since it began")


def qualities_of(epochs: Epochs) -> Iterator[tuple[int, float]]:
    """The rows of epochs with a quality that is not an accuracy, and that quality."""
    for row in places_of(epochs.further != None):  # noqa: E711  # of every element
        if (quality := epochs.further[row][0]) is not None:
            yield int(row), quality


def check_finite(traces: Traces) -> Iterator[Damage]:
    """Losses and a quality that are not numbers."""
    rows = traces.epochs.whole
    for column, name in enumerate(("loss", "validation loss")):
        values = traces.epochs.measured[:, column]
        for row in places_of(~np.isfinite(values)):
            yield _at(traces, rows, row, "bounds", f"the {name} is {values[row]}", "a finite number")
    for row, quality in qualities_of(traces.epochs):
        if not isfinite(quality):
            yield _at(traces, rows, row, "bounds", f"the quality is {quality}", "a finite number")


def _learning_rates(traces: Traces, starts: list[TrialStarted], of: Numbers, view: RunView) -> Iterator[Damage]:
    """Learning rates off the schedule: linear from the first one to 0 (paper, Table 4)."""
    rows, found = traces.epochs.whole, traces.epochs.measured[:, 2]
    default = view.config.training.learning_rate
    firsts = [start.hyperparameters.get("learning_rate", default) for start in starts]
    is_text = np.array([isinstance(first, str) for first in firsts], bool)[of]
    for row in places_of(is_text):
        yield _at(traces, rows, row, "bounds", f"a first learning rate of {firsts[of[row]]!r}", "a number")
    first = np.array([0.0 if isinstance(first, str) else first for first in firsts], np.float64)[of]
    due: Any = learning_rate(first, rows[:, EPOCH] - 1, view.max_epochs)  # type: ignore[arg-type]  # of all
    slack = RATE_TOLERANCE * first
    # The schedule counts the updates of all groups, with a lower rate (`rules.asynchrony`).
    of_groups = view.config.training.groups > 1
    # Steps whose gradients overflow in float16 are left out, and do not move the schedule on.
    overflows = np.array([start.precision == "mixed_float16" for start in starts], bool)[of]
    least = np.zeros(len(rows)) if of_groups else due - slack
    most = first + slack if of_groups else np.where(overflows, first, due) + slack
    # Negated, so that a rate that is not a number is a damage as well.
    for row in places_of(~((least <= found) & (found <= most)) & ~is_text):
        if of_groups:
            yield _at(traces, rows, row, "bounds", f"a learning rate of {found[row]:g}", f"at most {first[row]:g}")
        else:
            said = f"a learning rate of {found[row]:g} in epoch {rows[row, EPOCH]}"
            yield _at(traces, rows, row, "bounds", said, f"{due[row]:g}")


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


def _beginning(view: RunView, trial: int, index: TrialTrace[TrialStarted]) -> Iterator[Damage]:
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


def _training(index: TrialTrace[TrialStarted]) -> tuple[object, ...]:
    body = index.started.body
    return body.architecture, body.parent, body.morphs, body.hyperparameters


def _end(index: TrialTrace[TrialStarted], qualities: dict[int, float], plan: RoundPlan) -> Iterator[Damage]:
    values = list(qualities.values())
    trial = index.started.body.trial
    # The last epoch may be the one that uses the patience up. If that was an epoch of an earlier
    # trial, going on after it is the earlier trial's damage.
    early = epoch_out_of_patience(values[:-1], plan.patience)
    own_first = int(index.completed.column(EPOCH)[0]) if len(index.completed) else None
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
    # All fits at once in NumPy take a fraction of the time. What they leave in doubt is computed by
    # the program of the search itself, which alone decides.
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
