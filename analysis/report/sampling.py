"""The samples of telemetry that stand behind the work: their cover, use and power meanwhile."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from analysis.reading.samples import Series
from analysis.reading.telemetry import NodeSeries
from analysis.report.rates.work_intervals import WorkIntervalColumns

WorkIntervals = tuple[Series, Series]
"""Begins and ends of disjoint intervals, in order."""


def working_time(*found: WorkIntervalColumns) -> WorkIntervals:
    """The union of the times of intervals, in milliseconds."""
    begins, ends = (np.concatenate([getattr(own, name) for own in found]) for name in ("begins_ms", "ends_ms"))
    kept = ends > begins
    order = np.argsort(begins[kept])
    # The latest end so far: a long interval may cover several that begin after it.
    begins, ends = begins[kept][order], np.maximum.accumulate(ends[kept][order])
    opens = np.append(True, begins[1:] > ends[:-1]) if len(begins) else np.zeros(0, bool)
    closes = np.append(opens[1:], True) if len(begins) else opens
    return begins[opens].astype(np.float64), ends[closes].astype(np.float64)


def covered_share(times: Series, reach_ms: float, working: WorkIntervals) -> float:
    """The share of the working time that lies at most `reach_ms` away from a sample."""
    begins, ends = working
    total = float((ends - begins).sum())
    if total <= 0:
        return 1.0
    times = np.unique(times[~np.isnan(times)])
    if not times.size:
        return 0.0
    # Time without a sample up to each moment: it grows only between the reaches of two samples.
    # Moments before and behind everything: `np.interp` knows no slope beyond its ends.
    far = np.array([min(begins[0], times[0]) - 1 - 2 * reach_ms, max(ends[-1], times[-1]) + 1 + 2 * reach_ms])
    closed = np.concatenate([far[:1], times + reach_ms])
    opened = np.concatenate([times - reach_ms, far[1:]])
    gaps = np.maximum(opened - closed, 0.0)
    edges = np.stack([np.minimum(closed, opened), opened], axis=1).ravel()
    before = np.concatenate([[0.0], np.cumsum(gaps)[:-1]])
    empty = np.stack([before, before + gaps], axis=1).ravel()
    return 1.0 - float((np.interp(ends, edges, empty) - np.interp(begins, edges, empty)).sum()) / total


def mean_while_working(node: NodeSeries, column: str, working: WorkIntervals) -> float | None:
    """Mean of a column over the samples of the working time; None without any."""
    _, values = _while_working(node, column, working)
    return float(values.mean()) if values.size else None


def lowest_while_working(node: NodeSeries, column: str, working: WorkIntervals) -> tuple[float, float] | None:
    """Time and value of the lowest sample of the working time; None without any."""
    times, values = _while_working(node, column, working)
    place = int(values.argmin()) if values.size else 0
    return (float(times[place]), float(values[place])) if values.size else None


def _while_working(node: NodeSeries, column: str, working: WorkIntervals) -> tuple[Series, Series]:
    """Times and values of the samples of the working time that have one."""
    begins, ends = working
    times, values = node.column("time_ms"), node.column(column)
    there = inside(times, (begins, ends)) & ~np.isnan(values)
    return times[there], values[there]


def inside(times: Series, working: WorkIntervals) -> NDArray[np.bool_]:
    """Marks of the times that lie in the working time."""
    begins, ends = working
    place = np.searchsorted(begins, times, side="right") - 1
    return np.asarray((place >= 0) & (times <= (ends[np.maximum(place, 0)] if ends.size else -np.inf)), np.bool_)


def most_accelerators(node: NodeSeries) -> int:
    """Largest number of accelerators in a sample of the node."""
    return int(np.nanmax(node.column("accelerators"), initial=0.0))


def by_host(nodes: Sequence[NodeSeries]) -> dict[str, NodeSeries]:
    """The samples of each node by its name."""
    return {node.host: node for node in nodes}
