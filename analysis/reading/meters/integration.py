"""Energy over time by the readings of a meter: integration of power, counters, gaps and resets."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Series = NDArray[np.float64]
Marks = NDArray[np.bool_]

Kind = Literal["counter", "instant", "average"]

GAP = 2.5
"""Multiple of the usual interval between two readings from which on readings are missing."""

MOST_OF_OTHERS = 2.0
"""Multiple of the greatest power of the intervals in which a counter rises, up to which it can have
passed its limit in one in which it falls, or have risen to one reading alone (our choice). All of
them count, not the next ones alone: a counter of coarse units stands still in most intervals.
"""


@dataclass(frozen=True, eq=False)
class Curve:
    """Joules of a meter from its first reading on. Times are UTC milliseconds, in ascending order.

    Between two readings power is linear if readings are instantaneous, else constant.
    """

    times_ms: Series
    joules: Series
    watts: Series
    """Power at each reading, for `instant`; else the mean since the reading before."""
    estimated: Marks
    """Intervals behind each reading but the last of which no reading says what was used."""
    resets: int
    """Times at which the counter fell without passing a known limit."""
    linear: bool

    @property
    def interval_s(self) -> float:
        """The usual interval between two readings."""
        return float(np.median(np.diff(self.times_ms))) / 1000

    def joules_at(self, moments_ms: Series) -> Series:
        """Joules up to each moment, which is not before the first reading or after the last."""
        moments = np.clip(moments_ms, self.times_ms[0], self.times_ms[-1])
        before = np.clip(np.searchsorted(self.times_ms, moments, "right") - 1, 0, len(self.times_ms) - 2)
        if not self.linear:
            return np.asarray(np.interp(moments, self.times_ms, self.joules), np.float64)
        since = (moments - self.times_ms[before]) / 1000
        power = np.interp(moments, self.times_ms, self.watts)
        return np.asarray(self.joules[before] + since * (self.watts[before] + power) / 2, np.float64)

    def used(self, start_ms: float, end_ms: float) -> float:
        """Joules from start to end, of the part that the readings span."""
        start, end = self.joules_at(np.array([start_ms, end_ms], np.float64))
        return float(end - start)

    def covered_ms(self, start_ms: float, end_ms: float) -> float:
        """The part of a time of which readings say what was used."""
        begins, ends = np.maximum(self.times_ms[:-1], start_ms), np.minimum(self.times_ms[1:], end_ms)
        return float(np.maximum(ends - begins, 0.0)[~self.estimated].sum())

    def readings(self, start_ms: float, end_ms: float) -> int:
        """The number of readings from start to end."""
        return int(((self.times_ms >= start_ms) & (self.times_ms <= end_ms)).sum())

    def longest_s(self, start_ms: float, end_ms: float) -> float:
        """The longest time between start and end without a reading, at both ends too."""
        within = self.times_ms[(self.times_ms > start_ms) & (self.times_ms < end_ms)]
        return float(np.diff(np.concatenate([[start_ms], within, [end_ms]])).max()) / 1000

    def ends_s(self, start_ms: float, end_ms: float) -> float:
        """Seconds from the start to the first reading behind it, and from the last to the end."""
        within = self.times_ms[(self.times_ms >= start_ms) & (self.times_ms <= end_ms)]
        known = within[-1] - within[0] if len(within) else 0.0
        return float(end_ms - start_ms - known) / 1000


def curve_of(times_ms: Series, values: Series, kind: Kind, wraps_at: float | None = None) -> Curve:
    """The curve of at least two readings, watts or, of a counter, joules.

    Of readings at one time the last counts.
    """
    order = np.argsort(times_ms, kind="stable")
    last = np.append(np.diff(times_ms[order]) > 0, True)
    times, values = times_ms[order][last], values[order][last]
    seconds = np.diff(times) / 1000
    gaps = seconds > GAP * np.median(seconds)
    if kind == "counter":
        kept = ~_absurd(values, seconds)
        times, values, seconds = times[kept], values[kept], np.diff(times[kept]) / 1000
        return _counted(times, values, seconds, wraps_at)
    if kind == "instant":
        joules = seconds * (values[1:] + values[:-1]) / 2
    else:
        # A reading behind a gap is the mean of the usual interval, not of the whole gap.
        known = np.minimum(seconds, np.median(seconds))
        joules = known * values[1:] + (seconds - known) * (values[1:] + values[:-1]) / 2
    return Curve(times, _summed(joules), values, gaps, 0, linear=kind == "instant")


def _summed(steps: Series) -> Series:
    return np.concatenate([[0.0], np.cumsum(steps)])


def _absurd(counter: Series, seconds: Series) -> Marks:
    """Single readings outside of those around them, which are in order, by more than was ever used.

    The counter has not moved there: with the reading, the leap and the way back would both count.
    """
    before, own, after = counter[:-2], counter[1:-1], counter[2:]
    outside = (before <= after) & ((own > after) | (own < before))
    rises = np.diff(counter) / seconds
    beside = np.append(outside, False) | np.append(False, outside)
    most = float(rises[~beside].max(initial=0.0))
    leaps = np.maximum(rises[:-1], rises[1:]) > MOST_OF_OTHERS * most
    return np.concatenate([[False], outside & leaps & (most > 0), [False]])


def _counted(times: Series, counter: Series, seconds: Series, wraps_at: float | None) -> Curve:
    """The curve of a counter: it continues through gaps, and is estimated where it was reset."""
    steps = np.diff(counter)
    fallen = steps < 0
    if wraps_at is not None:
        passing = steps + wraps_at
        most = MOST_OF_OTHERS * float((steps / seconds)[~fallen].max(initial=0.0))
        # A counter that was above the declared limit, or too far below it, was reset.
        passed = fallen & (counter[:-1] <= wraps_at) & (passing <= most * seconds)
        steps, fallen = np.where(passed, passing, steps), fallen & ~passed
    power = steps / seconds
    for place in np.flatnonzero(fallen):
        # At least what it has counted since.
        steps[place] = max(float(counter[place + 1]), seconds[place] * _power_between(times, power, fallen, int(place)))
    return Curve(times, _summed(steps), np.append(steps / seconds, 0.0), fallen, int(fallen.sum()), linear=False)


def _power_between(times: Series, power: Series, unknown: Marks, place: int) -> float:
    """The mean power of an interval by those around it; 0 if none is known.

    Through the means of two known intervals on each side goes a cubic (Lagrange's polynomial).
    """
    known = np.flatnonzero(~unknown)
    near = np.concatenate([known[known < place][-2:], known[known > place][:2]])
    if not len(near):
        return 0.0
    middles = (times[:-1] + times[1:])[near] / 2
    at, found = (times[place] + times[place + 1]) / 2, 0.0
    for one, middle in enumerate(middles):
        others = np.delete(middles, one)
        found += float(power[near][one] * np.prod((at - others) / (middle - others)))
    # Noise must not become a peak.
    return float(np.clip(found, power[near].min() / 2, power[near].max() * 2))
