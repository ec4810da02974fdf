"""Telemetry of a run: samples of every node on the primary's clock, as series, means and energy."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from aiperf.clock import parse_utc
from aiperf.outside.reading import shortened
from aiperf.run_directory.paths import RunPaths
from aiperf.run_directory.seals import is_broken, is_sealed
from analysis.reading.workers import Workers

Series = NDArray[np.float64]

COLUMNS = (
    "time_ms",
    "accelerators",
    "accelerator_percent",
    "accelerator_memory_percent",
    "accelerator_power_w",
    "accelerator_energy_j",
    "cpu_percent",
    "cpu_power_w",
    "memory_used_bytes",
    "memory_total_bytes",
    "memory_percent",
)
"""Columns kept of a sample; over a node's accelerators, use is a mean, power and energy are sums.
"""

PLAIN = COLUMNS[6:10]
"""Columns that are copied from the sample unchanged."""

FileSamples = tuple[str, list[tuple[int, str]], str, Series, int]
"""Name of the file, the writers by the first sample of each, host, samples at the times of their
writers' clocks, and the number of lines that could not be read.
"""

MJ_PER_J = 1000

MOST_LINE_BYTES = 1 << 20
"""A longer line is read as several, none of which is a sample."""

MOST_UNREADABLE = 1000
"""Lines of a file that are not samples, after which the rest of it is not read."""


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
    return [workers.submit(_read_file, file) for file in paths.telemetry_files()]


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


def _read_file(file: Path) -> FileSamples:
    writers, host, bad = list[tuple[int, str]](), "?", 0
    rows: list[list[float]] = []
    for line in _lines(file):
        if bad > MOST_UNREADABLE:
            break
        try:
            if line is None:
                bad += 1
            elif (sample := _usual_sample(line)) is not None:
                rows.append(_usual_row(sample))
            elif not isinstance(document := _document(line), dict):
                bad += 1
            elif "version" in document:
                writer, host = str(document["writer"]), shortened(str(document["host"]))
                writers.append((len(rows), writer))
            else:
                rows.append(_row(document))
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError):
            bad += 1
    return file.name, writers, host, np.array(rows, dtype=np.float64), bad


def _lines(file: Path) -> Iterator[bytes | None]:
    """The lines of a file; None for one whose seal is broken, or missing after a sealed one."""
    seals = False
    try:
        with file.open("rb") as stream:
            while line := stream.readline(MOST_LINE_BYTES):
                sealed = is_sealed(line)
                seals = seals or sealed
                yield line if seals == sealed and not (sealed and is_broken(line)) else None
    except OSError:
        yield None


class _Accelerator(msgspec.Struct, gc=False):
    """What is kept of an accelerator."""

    use: float | None = msgspec.field(default=None, name="DCGM_FI_DEV_GPU_UTIL")
    memory_used: float | None = msgspec.field(default=None, name="DCGM_FI_DEV_FB_USED")
    memory_total: float | None = msgspec.field(default=None, name="DCGM_FI_DEV_FB_TOTAL")
    power: float | None = msgspec.field(default=None, name="DCGM_FI_DEV_POWER_USAGE")
    energy: float | None = msgspec.field(default=None, name="DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION")


class _Sample(msgspec.Struct, gc=False):
    """A sample as it is usually written."""

    time: str
    accelerators: list[_Accelerator] = []
    cpu_percent: float = np.nan
    cpu_power_w: float = np.nan
    memory_used_bytes: float = np.nan
    memory_total_bytes: float = np.nan
    version: object = None


_SAMPLES = msgspec.json.Decoder(_Sample)


def _usual_sample(line: bytes) -> _Sample | None:
    """A line with numbers where they belong; None for any other, and for the head of a file."""
    try:
        sample = _SAMPLES.decode(line)
    except (ValueError, RecursionError):
        return None
    return sample if sample.version is None and b"null" not in line and b'"version"' not in line else None


def _usual_row(sample: _Sample) -> list[float]:
    """As `_row`."""
    gpus = sample.accelerators
    used = [gpu.memory_used for gpu in gpus if gpu.memory_used is not None]
    size = [gpu.memory_total for gpu in gpus if gpu.memory_total is not None]
    row = [
        float(parse_utc(sample.time)),
        float(len(gpus)),
        _mean([gpu.use for gpu in gpus if gpu.use is not None]),
        100 * sum(used) / sum(size) if sum(size) > 0 and len(used) == len(size) else np.nan,
        _sum([gpu.power for gpu in gpus if gpu.power is not None], len(gpus)),
        _sum([gpu.energy for gpu in gpus if gpu.energy is not None], len(gpus)) / MJ_PER_J,
        sample.cpu_percent, sample.cpu_power_w, sample.memory_used_bytes, sample.memory_total_bytes,
        100 * sample.memory_used_bytes / sample.memory_total_bytes,
    ]  # fmt: skip
    if inf in row or -inf in row:
        raise ValueError("a number is infinite")
    return row


def _document(line: bytes) -> Any:
    """A line of JSON; None if it is not JSON."""
    try:
        return msgspec.json.decode(line)
    except (ValueError, RecursionError):
        pass
    try:
        return json.loads(line)  # also NaN, and numbers of any size
    except (ValueError, RecursionError):
        return None


def _row(sample: Mapping[str, Any]) -> list[float]:
    gpus = sample.get("accelerators") or []
    used, size = _values(gpus, "DCGM_FI_DEV_FB_USED"), _values(gpus, "DCGM_FI_DEV_FB_TOTAL")
    row = [
        float(parse_utc(sample["time"])),
        float(len(gpus)),
        _mean(_values(gpus, "DCGM_FI_DEV_GPU_UTIL")),
        100 * sum(used) / sum(size) if sum(size) > 0 and len(used) == len(size) else np.nan,
        _sum(_values(gpus, "DCGM_FI_DEV_POWER_USAGE"), len(gpus)),
        _sum(_values(gpus, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"), len(gpus)) / MJ_PER_J,
        *(float(sample.get(name, np.nan)) for name in PLAIN),
        100 * float(sample.get("memory_used_bytes", np.nan)) / float(sample.get("memory_total_bytes", np.nan)),
    ]
    if inf in row or -inf in row:
        raise ValueError("a number is infinite")
    return row


def _values(gpus: list[dict[str, Any]], name: str) -> list[float]:
    return [float(gpu[name]) for gpu in gpus if name in gpu]


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else np.nan


def _sum(values: list[float], expected: int) -> float:
    """The sum; NaN unless every accelerator reports: a partial sum would look like a saving."""
    return sum(values) if values and len(values) == expected else np.nan
