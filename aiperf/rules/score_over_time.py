"""The score over time: points as if the run had ended at each of them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from aiperf.rules.score import GRID_MS, operations_per_second, regulated
from aiperf.rules.work import Totals, WorkColumns


@dataclass(frozen=True, slots=True)
class TimelinePoint:
    """Score, error and regulated score as if the run had ended at `t_ms` after its start."""

    t_ms: int
    ops: float
    error: float
    regulated_ops: float


class Course:
    """The work and the best error of trials over time: sorted once, for any number of timelines."""

    def __init__(self, work: WorkColumns) -> None:
        times, amounts = work.changes()
        order = np.argsort(times)
        self._change_times, self._totals = times[order], Totals(amounts[order])
        times, errors = work.errors()
        order = np.argsort(times)
        self._error_times, self._errors = times[order], np.minimum.accumulate(errors[order])

    def timeline(self, start_ms: int, end_ms: int, grid_ms: int = GRID_MS) -> tuple[TimelinePoint, ...]:
        """Points on a grid (of 0.1 hour by the rules) from the start, and at the end.

        Each point is the score and the error of a run that ended at that moment.
        """
        points = []
        for at_ms in _grid(start_ms, end_ms, grid_ms):
            done = bisect_right(self._change_times, at_ms)
            seen = bisect_right(self._error_times, at_ms)
            ops = operations_per_second(self._totals.up_to(done), at_ms - start_ms)
            error = float(self._errors[seen - 1]) if seen else 1.0
            points.append(TimelinePoint(at_ms - start_ms, ops, error, regulated(ops, error)))
        return tuple(points)


def _grid(start_ms: int, end_ms: int, grid_ms: int) -> Iterator[int]:
    yield from range(start_ms + grid_ms, end_ms, grid_ms)
    if end_ms > start_ms:
        yield end_ms
