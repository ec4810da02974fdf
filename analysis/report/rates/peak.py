"""The peak rate of a training and of a run: the best mean over ten progress intervals.

A progress interval lies between two consecutive records of a trial (progress or epoch); the first
one begins with its training. Of runs of an hour and more, reports read the last record of each 90 s
(`analysis.reading.history`), which are then the intervals. Source: this project; the 15-PF paper
(Kurth et al. 2017) names a peak and a sustained rate without their formulas.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aiperf.rules.work import NEVER, Exact, Numbers, WorkColumns, cumulative, key_of
from analysis.reading.run_data import RunData
from analysis.report.rates.work_intervals import WorkIntervals

INTERVALS = 10


@dataclass(frozen=True, slots=True, eq=False)
class Curves:
    """The records of trials, one for each time, by trial: its place, time, and operations done."""

    trials: Numbers
    times: NDArray[np.float64]
    done: NDArray[np.float64]

    @property
    def again(self) -> NDArray[np.bool_]:
        """True for each row but the first whose trial is that of the row before."""
        found: NDArray[np.bool_] = self.trials[1:] == self.trials[:-1]
        return found


def peak_of_trial(work: WorkColumns, place: int, begin_ms: int) -> float | None:
    """Operations per second in the best ten consecutive intervals of a trial, by its place.

    Of fewer intervals, in all of them. None without any.
    """
    found = curves_of(work.of_trial(place), np.array([begin_ms], np.int64))
    times, done = found.times, found.done
    if len(times) < 2:
        return None
    reach = min(INTERVALS, len(times) - 1)
    return float(((done[reach:] - done[:-reach]) * 1000 / (times[reach:] - times[:-reach])).max())


def curves_of(work: WorkColumns, begins_ms: Numbers) -> Curves:
    """The records of each trial after its beginning; only work that counts."""
    places = np.arange(len(work))
    epochs, before, after = work.epochs, *_around(work)
    reports, done = _reports(work, before)
    trials = np.concatenate([places, epochs[:, 0], reports[:, 0]])
    times = np.concatenate([begins_ms, epochs[:, 1], reports[:, 1]])
    every = np.concatenate([np.zeros(len(work)), after.astype(np.float64), done.astype(np.float64)])
    kept = times >= begins_ms[trials]
    trials, times, every = trials[kept], times[kept], every[kept]
    order = np.lexsort((every, times, trials))
    trials, times, every = trials[order], times[order], every[order]
    # Of the records of one moment the last one stays.
    is_last = np.append((np.diff(times) > 0) | (np.diff(trials) != 0), True) if len(trials) else np.zeros(0, bool)
    return Curves(trials[is_last], times[is_last].astype(np.float64), _highest(trials, every)[is_last])


def _highest(trials: Numbers, done: NDArray[np.float64]) -> NDArray[np.float64]:
    """The largest number of a trial up to each row."""
    # By ranks: of equal numbers any may stand for the others.
    ranks = np.empty(len(done), np.int64)
    order = np.lexsort((done, trials))
    ranks[order] = np.arange(len(done))
    return done[order][np.maximum.accumulate(ranks)] if len(done) else done


def _around(work: WorkColumns) -> tuple[Exact, Exact]:
    """Operations of each trial before and after each of its epochs, in order of their numbers."""
    places = work.epochs[:, 0]
    # Rows are in the order of trials, so the first row with a trial's place is its first epoch.
    begins = np.searchsorted(places, places)
    sums = [cumulative(work.epochs[:, column]) for column in (3, 4)]
    rows = np.arange(len(places))
    return tuple(work.operations(places, *(total[rows + step] - total[begins] for total in sums)) for step in (0, 1))  # type: ignore[return-value]


def _reports(work: WorkColumns, before: Exact) -> tuple[Numbers, Exact]:
    """The reports that count, and the operations of their trials up to each."""
    epochs, reports = work.epochs, work.reports
    keys, wanted = (key_of(rows[:, 0], rows[:, 2]) for rows in (epochs, reports))
    rows = np.searchsorted(keys, wanted)
    # -1 behind the last key: no report is of that.
    known = np.append(keys, -1)[rows] == wanted
    ends = np.searchsorted(epochs[:, 0], np.arange(1, len(work) + 1))
    has_epochs = ends > np.searchsorted(epochs[:, 0], np.arange(len(work)))
    last = np.where(has_epochs, np.append(epochs[:, 2], 0)[ends - 1], 0)
    counts = known | ((reports[:, 2] > last[reports[:, 0]]) & (work.died_ms[reports[:, 0]] == NEVER))
    reports, rows, known = reports[counts], rows[counts], known[counts]
    totals = work.operations(np.arange(len(work)), *_totals(work, ends))
    start = np.where(known, np.append(before, np.zeros(1, before.dtype))[rows], totals[reports[:, 0]])
    return reports, start + work.operations(reports[:, 0], reports[:, 3], reports[:, 4])


def _totals(work: WorkColumns, ends: Numbers) -> tuple[Exact, Exact]:
    """Images of all epochs of each trial, trained and evaluated."""
    begins = np.append(0, ends[:-1]) if len(ends) else ends
    trained, evaluated = (cumulative(work.epochs[:, column]) for column in (3, 4))
    return trained[ends] - trained[begins], evaluated[ends] - evaluated[begins]


def peak_ops(data: RunData, work: WorkIntervals) -> float | None:
    """Operations per second of a run in its best window of ten median intervals; None without work.

    In an interval a trial works at a constant rate. The rates of all trials add up. `work`: the
    intervals of every trial. The whole of the work is a window, too: no peak is below its mean.
    """
    curves = _curves(data, work)
    if not curves.again.any():
        return None
    window_ms = INTERVALS * float(np.median(np.diff(curves.times)[curves.again]))
    times, done = _together(curves)
    span_ms = times[-1] - times[0]
    whole = float(done[-1] * 1000 / span_ms)
    if span_ms <= window_ms:
        return whole
    # The best window begins or ends where a rate changes.
    begins = np.concatenate([times, times - window_ms])
    begins = begins[(begins >= times[0]) & (begins + window_ms <= times[-1])]
    gains = np.interp(begins + window_ms, times, done) - np.interp(begins, times, done)
    return max(whole, float(gains.max() * 1000 / window_ms))


def _curves(data: RunData, work: WorkIntervals) -> Curves:
    """The curves of all trials with intervals that have two points."""
    # A trial without intervals begins never, so that all of its records are before that.
    begins_ms = np.full(len(data.work), NEVER, np.int64)
    places = np.searchsorted(np.array(data.work.trials, np.int64), np.array(list(work), np.int64))
    begins_ms[places] = work.first_begins_ms()
    found = curves_of(data.work.columns, begins_ms)
    kept = np.isin(found.trials, places)
    if len(kept):
        again = np.append(False, found.again)
        # A curve of one point has no rate.
        kept &= again | np.append(again[1:], False)
    return Curves(found.trials[kept], found.times[kept], found.done[kept])


def _together(curves: Curves) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The sum of piecewise linear curves: its bends, and its values at them, the first one 0."""
    with np.errstate(all="ignore"):  # from one curve to the next
        rates = np.where(curves.again, np.diff(curves.done) / np.diff(curves.times), 0.0)
    # Of a rate before the first point and after the last one of a curve, nothing is left.
    change = np.diff(np.concatenate([[0.0], rates, [0.0]]))
    moments, places = np.unique(curves.times, return_inverse=True)
    changes = np.zeros(len(moments))
    np.add.at(changes, places, change)
    steps = np.cumsum(changes)[:-1] * np.diff(moments)
    return moments, np.concatenate([[0.0], np.cumsum(steps)])
