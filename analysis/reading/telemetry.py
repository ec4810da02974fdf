"""Telemetry of a run: samples of every node on the primary's clock, as series, means and energy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from aiperf.run_directory.paths import RunPaths
from analysis.reading.samples import COLUMNS, FileSamples, Series, read_samples
from analysis.reading.workers import Workers


@dataclass(frozen=True)
class NodeSeries:
    """All samples of one node by time: an array of samples x COLUMNS, NaN if missing."""

    host: str
    samples: Series
    writers: frozenset[str] = frozenset()
    """The processes that sampled it, by the names of their histories."""

    def column(self, name: str) -> Series:
        """One column."""
        return self.samples[:, COLUMNS.index(name)]

    def mean(self, name: str, start_ms: int, end_ms: int) -> float | None:
        """Mean of the values from start to end; None without any."""
        times, values = self.column("time_ms"), self.column(name)
        within = values[(times >= start_ms) & (times <= end_ms) & ~np.isnan(values)]
        return float(within.mean()) if within.size else None

    def accelerator_energy(self, moments_ms: Series) -> Series | None:
        """Joules of the accelerators from the first sample to each moment.

        From their energy counters if the driver has them, else power integrated by the trapezoidal
        rule. None if there are not two values of either.
        """
        counted = self._reported("accelerator_energy_j")
        if counted is not None:
            return np.asarray(np.interp(moments_ms, counted[0], counted[1] - counted[1][0]), np.float64)
        return _integral(self._reported("accelerator_power_w"), moments_ms)

    def cpu_energy(self, moments_ms: Series) -> Series | None:
        """Joules of the CPU packages from the first sample to each moment, or None."""
        return _integral(self._reported("cpu_power_w"), moments_ms)

    def _reported(self, name: str) -> tuple[Series, Series] | None:
        times, values = self.column("time_ms"), self.column(name)
        there = ~np.isnan(values)
        return (times[there], values[there]) if there.sum() >= 2 else None


def _integral(reported: tuple[Series, Series] | None, moments_ms: Series) -> Series | None:
    if reported is None:
        return None
    times, power = reported
    steps = np.diff(times) / 1000 * (power[1:] + power[:-1]) / 2
    return np.asarray(np.interp(moments_ms, times, np.concatenate([[0.0], np.cumsum(steps)])), np.float64)


@dataclass(frozen=True)
class Telemetry:
    """Samples of all nodes of a run."""

    nodes: tuple[NodeSeries, ...]
    unreadable: Mapping[str, int]
    """Lines that cannot be read, by the name of the file."""

    @property
    def unreadable_lines(self) -> int:
        """Lines of all files that cannot be read."""
        return sum(self.unreadable.values())

    def energy(self, start_ms: int, moments_ms: Series) -> tuple[Series | None, Series | None]:
        """Joules up to each moment, of all accelerators and of all CPUs; None if unknown."""
        every = np.concatenate([[float(start_ms)], moments_ms])
        sums: list[Series | None] = []
        for measure in (NodeSeries.accelerator_energy, NodeSeries.cpu_energy):
            found = [energy for node in self.nodes if (energy := measure(node, every)) is not None]
            total = np.sum(found, axis=0) if found else None
            sums.append(None if total is None else total[1:] - total[0])
        return sums[0], sums[1]

    def binned(self, name: str, edges_ms: Series) -> Series:
        """Mean over nodes of each node's mean in each bin; NaN for a bin without a value."""
        rows = [_bin_means(node.column("time_ms"), node.column(name), edges_ms) for node in self.nodes]
        if not rows:
            return np.full(len(edges_ms) - 1, np.nan)
        table = np.array(rows)
        there = ~np.isnan(table)
        count = there.sum(axis=0)
        total = np.where(there, table, 0.0).sum(axis=0)
        means: Series = np.divide(total, count, out=np.full(len(count), np.nan), where=count > 0)
        return means


def _bin_means(times: Series, values: Series, edges: Series) -> Series:
    there = ~np.isnan(values)
    count, _ = np.histogram(times[there], edges)
    total, _ = np.histogram(times[there], edges, weights=values[there])
    means: Series = np.divide(total, count, out=np.full(len(count), np.nan), where=count > 0)
    return means


def submit_telemetry(paths: RunPaths, workers: Workers) -> list[Future[FileSamples]]:
    """Start reading all samples of a run, which need nothing of its history."""
    return [workers.submit(read_samples, file) for file in paths.telemetry_files()]


def gather_telemetry(read: Iterable[Future[FileSamples]], offsets_ms: Mapping[str, int]) -> Telemetry:
    """All samples by node, corrected by each writer's clock offset.

    Lines that cannot be read are counted and left out.
    """
    by_host: dict[str, list[Series]] = {}
    writers: dict[str, set[str]] = {}
    unreadable: dict[str, int] = {}
    for name, own_writers, host, samples, bad in (future.result() for future in read):
        if bad:
            unreadable[name] = bad
        if len(samples):
            by_host.setdefault(host, []).append(samples)
            writers.setdefault(host, set()).add(own_writers[-1][1] if own_writers else "")
            for (begin, writer), (end, _) in pairwise([*own_writers, (len(samples), "")]):
                samples[begin:end, 0] -= offsets_ms.get(writer, 0)
    nodes = []
    for host, parts in sorted(by_host.items()):
        samples = np.concatenate(parts)
        ordered = samples[np.argsort(samples[:, 0], kind="stable")]
        nodes.append(NodeSeries(host, ordered, frozenset(writers[host])))
    return Telemetry(tuple(nodes), unreadable)
