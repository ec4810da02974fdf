"""The pace of the work: what a trial trains, and intervals that are too short to look at alone."""

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from aiperf.records.bodies import TrialStarted, WorkloadStarted
from aiperf.rules.work import cumulative
from analysis.report.rates.work_intervals import WorkInterval, WorkIntervalColumns, WorkIntervals

TOGETHER_MS = 10_000
"""Shorter epochs are looked at together: the agent notes a short epoch's end late by as much."""

NEARLY = 1 - 1e-6
"""Share of a limit below which a number is below it, however it is rounded."""


def trained_of(begun: TrialStarted | WorkloadStarted) -> str:
    """Describe the work of a trial; trials with the same text do the same work for an image."""
    if isinstance(begun, TrialStarted):
        return f"architecture {begun.architecture}"
    return f"workload {begun.workload}, size {begun.size}"


Kind = tuple[object, ...]
"""Equal for trials that do the same work on the same devices."""


def paces(
    work: WorkIntervals, kind_of: Callable[[int, int], Kind | None], least_ms: int, fewest: int
) -> Iterator[tuple[Kind, dict[int, list[float]]]]:
    """Images per second of the longer intervals of each replica, by kind.

    `kind_of` a trial and its replica; `fewest` replicas of a kind. The first epoch of a training
    compiles, and is left out.
    """
    own: dict[Kind, list[tuple[int, slice]]] = {}
    every = work.every
    longer = cumulative((every.durations_ms > least_ms).astype(np.int64)).tolist()
    for trial, rows in work.rows():
        replica = int(every.replicas[rows.start])
        # Any longer interval behind the first one, by sums up to each row.
        kind = kind_of(trial, replica) if longer[rows.stop] > longer[rows.start + 1] else None
        if kind is not None:
            own.setdefault(kind, []).append((replica, rows))
    for kind, parts in own.items():
        found: dict[int, list[float]] = {}
        for replica, rows in parts if len({replica for replica, _ in parts}) >= fewest else ():
            images, durations = every.images[rows][1:], every.durations_ms[rows][1:]
            kept = durations > least_ms
            found.setdefault(replica, []).extend((images[kept] * 1000 / durations[kept]).tolist())
        if found:
            yield kind, found


def are_slower(every: WorkIntervalColumns, rows: slice, most: float, late_ms: int) -> bool:
    """True if no interval of a trial is near a rate, and none is so short that others are joined.

    An interval may be longer by `late_ms`.
    """
    durations = every.durations_ms[rows]
    ops = every.operations[rows].astype(np.float64) * 1000 / (durations + late_ms)
    return bool((durations >= TOGETHER_MS).all() and ops.max() < NEARLY * most)


def together(found: Iterable[WorkInterval]) -> list[WorkInterval]:
    """The intervals of one trial, put together until each lasts at least 10 s."""
    pieces: list[WorkInterval] = []
    for piece in found:
        if pieces and min(pieces[-1].duration_ms, piece.duration_ms) < TOGETHER_MS:
            pieces[-1] = _joined(pieces[-1], piece)
        else:
            pieces.append(piece)
    return pieces


def _joined(one: WorkInterval, other: WorkInterval) -> WorkInterval:
    return WorkInterval(
        one.replica,
        one.trial,
        one.first_epoch,
        one.begin_ms,
        max(one.end_ms, other.end_ms),
        one.images + other.images,
        one.operations + other.operations,
    )
