"""The peak rate of a training and of a run: the best mean over ten progress intervals.

A progress interval lies between two consecutive records of a trial (progress or epoch); the first
one begins with its training. Of runs of an hour and more, reports read the last record of each 90 s
(`analysis.reading.history`), which are then the intervals. Source: this project; the 15-PF paper
(Kurth et al. 2017) names a peak and a sustained rate without their formulas.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from aiperf.rules.score import TrialWork
from analysis.reading.run_data import RunData
from analysis.report.rates.pace import Stretch

INTERVALS = 10

Points = NDArray[np.float64]
"""Times in milliseconds and operations done since the first, as two rows."""


def peak_of_trial(work: TrialWork, begin_ms: int) -> float | None:
    """Operations per second in the best ten consecutive intervals of a trial.

    Of fewer intervals, in all of them. None without any.
    """
    times, done = points_of(work, begin_ms)
    if len(times) < 2:
        return None
    reach = min(INTERVALS, len(times) - 1)
    return float(((done[reach:] - done[:-reach]) * 1000 / (times[reach:] - times[:-reach])).max())


def points_of(work: TrialWork, begin_ms: int) -> Points:
    """The records of a trial after `begin_ms`, one for each time; only work that counts."""
    before, total = dict[int, int](), 0
    found = [(begin_ms, 0)]
    for epoch in sorted(work.epochs, key=lambda item: item.body.epoch):
        before[epoch.body.epoch] = total
        total += work.cost.work(epoch.body.images_trained, epoch.body.images_evaluated)
        found.append((epoch.time_ms, total))
    last = max(before, default=0)
    for report in work.progress:
        body = report.body
        counts = body.epoch in before or (body.epoch > last and work.died_ms is None)
        if counts:
            done = work.cost.work(body.images_trained, body.images_evaluated)
            found.append((report.time_ms, before.get(body.epoch, total) + done))
    times, done_by = np.array(sorted(item for item in found if item[0] >= begin_ms), np.float64).T
    highest = np.maximum.accumulate(done_by)
    is_last = np.append(np.diff(times) > 0, True)
    return np.array([times[is_last], highest[is_last]])


def peak_ops(data: RunData, work: dict[int, list[Stretch]]) -> float | None:
    """Operations per second of a run in its best window of ten median intervals; None without work.

    In an interval a trial works at a constant rate. The rates of all trials add up. `work`: the
    stretches of every trial. The whole of the work is a window, too: no peak is below its mean.
    """
    curves = [points_of(data.work[number], own[0].begin_ms) for number, own in work.items()]
    curves = [points for points in curves if points.shape[1] > 1]
    if not curves:
        return None
    window_ms = INTERVALS * float(np.median(np.concatenate([np.diff(times) for times, _ in curves])))
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


def _together(curves: Sequence[Points]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The sum of piecewise linear curves: its bends, and its values at them, the first one 0."""
    at, change = list[NDArray[np.float64]](), list[NDArray[np.float64]]()
    for times, done in curves:
        rates = np.diff(done) / np.diff(times)
        at.append(times)
        change.append(np.diff(np.concatenate([[0.0], rates, [0.0]])))
    moments, places = np.unique(np.concatenate(at), return_inverse=True)
    changes = np.zeros(len(moments))
    np.add.at(changes, places, np.concatenate(change))
    steps = np.cumsum(changes)[:-1] * np.diff(moments)
    return moments, np.concatenate([[0.0], np.cumsum(steps)])
