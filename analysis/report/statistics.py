"""Uncertainty of a run's result, and measures that do not depend on the search's choices.

The score is a sum over the replicas' work. The jackknife (Efron and Tibshirani 1993, An
Introduction to the Bootstrap, equation 11.5) leaves out one of n replicas and scales the rest to n:
its standard error is sqrt((n - 1) / n x sum of (estimate - mean of the estimates) ** 2), here equal
to s x sqrt(n) with s the standard deviation of the replicas' OPS. The interval is the score -+
Student's t (n - 1 degrees of freedom, 0.975) x that. With one replica the n are blocks of the run's
time.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from math import log, sqrt

import numpy as np

from aiperf.rules.schedule import draws_at_random
from aiperf.rules.score import GRID_MS
from aiperf.rules.work import WorkColumns
from analysis.reading.run_data import RunData
from analysis.report.estimates import IntervalPart, StatisticsPart
from analysis.report.intervals import Spans
from analysis.report.model import TrialPart

Z = 1.959963984540054
"""The standard normal distribution's 0.975 quantile."""

LEVEL = 0.975

BLOCKS = 10
"""Number of blocks of a run that is shorter than this many blocks of 0.1 hour."""


def statistics(
    data: RunData, trials: Sequence[TrialPart], score: float | None, spans: dict[int, Spans]
) -> StatisticsPart:
    """The statistics of a run. `score`: OPS, None without one. `spans`: of every replica."""
    work = data.work.columns
    samples, sampled, error = _jackknifed(data, trials)
    score_part = _around(score, error, samples) if score is not None else None
    error_part = _error(work, data.end_ms)
    initial = initial_trial(trials)
    tuned = [trial for trial in trials if trial.point > 0 and trial.started_s is not None]
    return StatisticsPart(
        score_ops=score_part,
        regulated_score_ops=regulated_interval(score_part, error_part),
        error=error_part,
        samples=samples,
        sampled=sampled,
        initial_ops=_initial_ops(trials, initial, spans),
        mean_growth=mean_growth(trials, initial),
        second_half=_second_half(data, work),
        points=len(tuned),
        random_points=_random_points(data, tuned),
    )


def initial_trial(trials: Iterable[TrialPart]) -> TrialPart | None:
    """The first trial without a parent that completed an epoch.

    It need not be trial 1: if that fails, another trial trains the initial architecture.
    """
    return next((trial for trial in trials if trial.parent is None and trial.point == 0 and trial.epochs > 0), None)


def _jackknifed(data: RunData, trials: Sequence[TrialPart]) -> tuple[int, str, float | None]:
    """Number and kind of the samples, and the standard error of the score; None of fewer than 2."""
    replicas = dict.fromkeys(data.ledger.replicas, 0)
    if data.duration_ms <= 0 or data.start_ms is None:
        return 0, "replicas", None
    if len(replicas) != 1:
        for trial in trials:
            if trial.replica in replicas:
                replicas[trial.replica] += trial.operations
        totals = [1000 * done / data.duration_ms for done in replicas.values()]
        count = len(totals)
        # The score grows with the replicas: what is left without one of n is scaled to n.
        left_out = [(sum(totals) - own) * count / (count - 1) for own in totals] if count > 1 else []
        return count, "replicas", jackknife_error(left_out)
    block_ms = min(GRID_MS, max(1, data.duration_ms // BLOCKS))
    points = data.course.timeline(data.start_ms, data.end_ms, block_ms)
    # A point has the mean rate since the start: times its time it is the work until then.
    done = [0.0, *(point.ops * point.t_ms / 1000 for point in points)]
    times = [0, *(point.t_ms for point in points)]
    blocks = [
        (after - before, end - begin)
        for before, after, begin, end in zip(done, done[1:], times, times[1:], strict=False)
    ]
    left_out = [1000 * (done[-1] - own) / (times[-1] - length) for own, length in blocks] if len(blocks) > 1 else []
    kind = "blocks of 0.1 hour" if block_ms == GRID_MS else "blocks of a tenth of the run"
    return len(blocks), kind, jackknife_error(left_out)


def jackknife_error(left_out: Sequence[float]) -> float | None:
    """The standard error from the estimates without each sample; None of fewer than two."""
    count = len(left_out)
    if count < 2:
        return None
    mean = sum(left_out) / count
    return sqrt((count - 1) / count * sum((estimate - mean) ** 2 for estimate in left_out))


def _around(value: float, error: float | None, samples: int) -> IntervalPart:
    if error is None:
        return IntervalPart(value=value, low=None, high=None)
    from scipy.special import stdtrit  # noqa: PLC0415  (a fifth of the time to import this program)

    half = float(stdtrit(samples - 1, LEVEL)) * error
    return IntervalPart(value=value, low=max(0.0, value - half), high=value + half)


def wilson(wrong: int, count: int) -> tuple[float, float]:
    """The 95 % interval of a binomial share (Wilson 1927, JASA 22, 209-212)."""
    share = wrong / count
    centre, scale = share + Z * Z / (2 * count), 1 + Z * Z / count
    half = Z * sqrt(share * (1 - share) / count + Z * Z / (4 * count * count))
    return max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)


def _error(work: WorkColumns, end_ms: int) -> IntervalPart | None:
    """The error of the best epoch that counts, with its interval over the evaluated images."""
    rows = work.epochs[work.judged & (work.epochs[:, 1] <= end_ms)]
    if not len(rows):
        return None
    evaluated, correct = rows[:, 4], rows[:, 5]
    errors = 1 - correct / evaluated
    best = errors == errors.min()
    # Of equally good epochs the one with the fewest images, whose interval is the widest.
    count, wrong = min(zip(evaluated[best].tolist(), (evaluated - correct)[best].tolist(), strict=True))
    if not 0 <= wrong <= count:  # a damage, which the rules report
        return None
    low, high = wilson(wrong, count)
    # Half an image stands for none, since 0 has no logarithm.
    least = 1 / (2 * count)
    return IntervalPart(value=max(wrong / count, least), low=max(low, least), high=high)


def regulated_interval(score: IntervalPart | None, error: IntervalPart | None) -> IntervalPart | None:
    """-ln(error) x score with the interval that those of both factors give.

    Each end is as far away as the root of the sum of the squares of the two effects of moving one
    factor to its end (the method of variance estimates recovery, Zou and Donner 2008, to first
    order). Without an interval of the score there is none.
    """
    if score is None:
        return None
    gain = -log(error.value) if error is not None and error.value < 1 else 0.0
    value = gain * score.value
    if error is None or None in (score.low, score.high, error.low, error.high):
        return IntervalPart(value=value, low=None, high=None)
    assert score.low is not None and score.high is not None and error.low is not None and error.high is not None
    gain_low, gain_high = -log(error.high), -log(error.low)
    low = sqrt((gain * (score.value - score.low)) ** 2 + (score.value * (gain - gain_low)) ** 2)
    high = sqrt((gain * (score.high - score.value)) ** 2 + (score.value * (gain_high - gain)) ** 2)
    return IntervalPart(value=value, low=max(0.0, value - low), high=value + high)


def _initial_ops(trials: Iterable[TrialPart], initial: TrialPart | None, spans: dict[int, Spans]) -> float | None:
    """Operations of the initial architecture's trials / time of their training and evaluation."""
    if initial is None:
        return None
    own = {trial.id: trial.operations for trial in trials if trial.architecture == initial.architecture}
    busy: dict[int, float] = {}
    for found in spans.values():
        for span in found.only(np.isin(found.trials, list(own))).of("train", "evaluate"):
            if span.trial is not None:
                busy[span.trial] = busy.get(span.trial, 0.0) + span.end_s - span.begin_s
    seconds = sum(busy.values())
    return sum(own[trial] for trial in busy) / seconds if seconds > 0 else None


def mean_growth(trials: Iterable[TrialPart], initial: TrialPart | None) -> float | None:
    """Operations an image over the initial architecture's, weighted by the trials' operations."""
    if initial is None or not initial.image_operations:
        return None
    known = [trial for trial in trials if trial.image_operations and trial.operations > 0]
    total = sum(trial.operations for trial in known)
    grown = sum(trial.operations * (trial.image_operations or 0) for trial in known)
    return grown / total / initial.image_operations if total else None


def _second_half(data: RunData, work: WorkColumns) -> float | None:
    """OPS of the second half of the run / OPS of the first."""
    if data.start_ms is None:
        return None
    middle_ms = data.start_ms + data.duration_ms // 2
    until_middle, until_end = (work.operations_done(moment).tolist() for moment in (middle_ms, data.end_ms))
    # Of a trial that was lost later, less counts at the end than at the middle.
    first = sum(map(min, until_middle, until_end))
    return (sum(until_end) - first) / first if first > 0 else None


def _random_points(data: RunData, tuned: Sequence[TrialPart]) -> int:
    """Points that were drawn at random: the first ones, and all of a tuner that does not learn."""
    if data.manifest.config.search.hpo != "tpe":
        return len(tuned)
    begins = sorted(trial.started_s or 0.0 for trial in tuned)
    results = _moments(tuned, lambda trial: trial.state in ("completed", "early_stop", "stopped") or _too_big(trial))
    over = _moments(tuned, lambda trial: trial.state != "running")
    count = 0
    for place, begin in enumerate(begins):
        # Points that had begun before this one, and were not over then.
        running = place - bisect_right(over, begin)
        count += draws_at_random(bisect_right(results, begin), max(0, running))
    return count


def _too_big(trial: TrialPart) -> bool:
    return (trial.failure_reason or "").startswith("out_of_memory")


def _moments(trials: Iterable[TrialPart], chosen: Callable[[TrialPart], bool]) -> list[float]:
    return sorted(trial.ended_s for trial in trials if trial.ended_s is not None and chosen(trial))
