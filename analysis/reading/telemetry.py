"""Telemetry of a run: samples of every node on the primary's clock, as series, means and energy."""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from aiperf.run_directory.paths import RunPaths
from analysis.reading.health import Health, Sign
from analysis.reading.integrity.view import replica_of
from analysis.reading.meters.integration import Curve, Kind, curve_of
from analysis.reading.samples import COLUMNS, Counters, FileSamples, Series, read_samples
from analysis.reading.workers import Workers


@dataclass(frozen=True)
class NodeSeries:
    """All samples of one node by time: an array of samples x COLUMNS, NaN if missing."""

    host: str
    samples: Series
    writers: frozenset[str] = frozenset()
    """The processes that sampled it, by the names of their histories."""
    cards: tuple[Curve, ...] = ()
    """Accelerators with an energy counter that has two values."""
    power: Curve | None = None
    """Energy by the power of all accelerators; None without two values."""
    cpus: Curve | None = None
    """Energy by the mean powers of the CPU packages; None without two values."""
    signs: tuple[Sign, ...] = ()
    """Signs of its health, in the order of time for each kind and device."""
    recorded: frozenset[str] = frozenset()
    """Kinds of signs of which its samples have values."""

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

        From their energy counters, each by itself, if all have one, else from their power. None if
        there are not two values of either.
        """
        if self.counts_energy:
            return np.asarray(np.sum([card.joules_at(moments_ms) for card in self.cards], axis=0), np.float64)
        return self.power.joules_at(moments_ms) if self.power is not None else None

    @property
    def counts_energy(self) -> bool:
        """True if every accelerator has an energy counter."""
        return bool(0 < np.nanmax(self.column("accelerators"), initial=0.0) <= len(self.cards))

    def cpu_energy(self, moments_ms: Series) -> Series | None:
        """Joules of the CPU packages from the first sample to each moment, or None."""
        return self.cpus.joules_at(moments_ms) if self.cpus is not None else None


@dataclass(frozen=True)
class Telemetry:
    """Samples of all nodes of a run."""

    nodes: tuple[NodeSeries, ...]
    unreadable: Mapping[str, int]
    """Lines that cannot be read, by the name of the file."""
    hosts: Mapping[str, str] = field(default_factory=dict)
    """The node of each writer: of several, the first that was sampled, which is its agent's."""

    def energy(self, start_ms: int, moments_ms: Series) -> tuple[Series | None, Series | None]:
        """Joules up to each moment, of all accelerators and of all CPUs; None if unknown."""
        every = np.concatenate([[float(start_ms)], moments_ms])
        sums: list[Series | None] = []
        for measure in (NodeSeries.accelerator_energy, NodeSeries.cpu_energy):
            found = [energy for node in self.nodes if (energy := measure(node, every)) is not None]
            total = np.sum(found, axis=0) if found else None
            sums.append(None if total is None else total[1:] - total[0])
        return sums[0], sums[1]

    def by_node(self, name: str, edges_ms: Series) -> Series:
        """Mean of each node in each bin, nodes x bins; NaN for a bin without a value."""
        rows = [_bin_means(node.column("time_ms"), node.column(name), edges_ms) for node in self.nodes]
        return np.array(rows).reshape(len(rows), len(edges_ms) - 1)

    def binned(self, name: str, edges_ms: Series) -> Series:
        """Mean over nodes of each node's mean in each bin; NaN for a bin without a value."""
        table = self.by_node(name, edges_ms)
        # Not `nanmean`, which warns of bins in which every node lacks a value.
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


def _series(host: str, parts: Sequence[tuple[Series, Counters]], **known: Any) -> NodeSeries:
    """The series of a node by all of its files, and its energy.

    Several processes may sample a node at a time. Their clocks and their turns differ by
    milliseconds, so that a counter would fall from a sample of one to the next one of another: of
    a time that more than one covers, the file that began first has the energy.
    """
    parts = sorted(parts, key=lambda part: float(part[0][:, 0].min()))
    ends = np.maximum.accumulate([float(samples[:, 0].max()) for samples, _ in parts])
    kept = [samples[:, 0] > before for (samples, _), before in zip(parts, [-np.inf, *ends], strict=False)]
    own = np.concatenate([samples[rows] for (samples, _), rows in zip(parts, kept, strict=True)])

    def curve(values: Series, kind: Kind) -> Curve | None:
        there = ~np.isnan(values)
        times_ms = own[there, 0]
        return curve_of(times_ms, values[there], kind) if len(np.unique(times_ms)) > 1 else None

    cards = []
    for card in dict.fromkeys(card for _, counters in parts for card in counters):
        of_files = [counters.get(card, np.full(len(samples), np.nan)) for samples, counters in parts]
        values = np.concatenate([counter[rows] for counter, rows in zip(of_files, kept, strict=True)])
        cards.append(curve(values, "counter"))
    samples = np.concatenate([part for part, _ in parts])
    return NodeSeries(
        host,
        samples[np.argsort(samples[:, 0], kind="stable")],
        cards=tuple(card for card in cards if card is not None),
        power=curve(own[:, COLUMNS.index("accelerator_power_w")], "instant"),
        cpus=curve(own[:, COLUMNS.index("cpu_power_w")], "average"),
        **known,
    )


def submit_telemetry(paths: RunPaths, workers: Workers) -> list[Future[FileSamples]]:
    """Start reading all samples of a run, which need nothing of its history."""
    return [workers.submit(read_samples, file) for file in paths.telemetry_files()]


def gather_telemetry(read: Iterable[Future[FileSamples]], offsets_ms: Mapping[str, int]) -> Telemetry:
    """All samples by node, corrected by each writer's clock offset.

    Lines that cannot be read are counted and left out.
    """
    by_host: dict[str, list[tuple[Series, Counters]]] = {}
    healths: dict[str, list[_OfFile]] = {}
    writers: dict[str, set[str]] = {}
    unreadable: dict[str, int] = {}
    began: dict[str, tuple[float, str]] = {}
    for name, own_writers, host, samples, bad, counters, health in (future.result() for future in read):
        if bad:
            unreadable[name] = bad
        if len(samples):
            by_host.setdefault(host, []).append((samples, counters))
            writers.setdefault(host, set()).add(own_writers[-1][1] if own_writers else "")
            for (begin, writer), (end, _) in pairwise([*own_writers, (len(samples), "")]):
                samples[begin:end, 0] -= offsets_ms.get(writer, 0)
                if end > begin:
                    first = float(samples[begin, 0]), host
                    began[writer] = min(first, began.get(writer, first))
            writer = own_writers[-1][1] if own_writers else ""
            replica, offset_ms = replica_of(writer), offsets_ms.get(writer, 0)
            moved = Health(tuple(sign.moved(offset_ms, replica) for sign in health.signs), health.recorded)
            times = samples[:, 0]
            healths.setdefault(host, []).append(_OfFile(float(times.min()), float(times.max()), replica, moved))
    nodes = []
    for host, parts in sorted(by_host.items()):
        recorded = frozenset().union(*(file.health.recorded for file in healths[host]))
        known = {"writers": frozenset(writers[host]), "signs": _signs(healths[host]), "recorded": recorded}
        nodes.append(_series(host, parts, **known))
    return Telemetry(tuple(nodes), unreadable, {writer: host for writer, (_, host) in began.items()})


class _OfFile(NamedTuple):
    """Health in a file: its first and last time, and the replica that wrote it."""

    first_ms: float
    last_ms: float
    replica: int | None
    health: Health


def _signs(files: Sequence[_OfFile]) -> tuple[Sign, ...]:
    """The signs of a node in all of its files.

    Several processes may sample a node at a time, and see the same counters: of a time that more
    than one of them covers, the file that began first has the signs. Those of a replica are in its
    own files alone.
    """
    found: dict[tuple[str, str, int | None], list[Sign]] = {}
    covered: dict[int | None, float] = {}
    for file in sorted(files, key=attrgetter("first_ms", "last_ms")):
        for sign in file.health.signs:
            new = sign.times_ms > covered.get(sign.replica, -np.inf)
            if new.any():
                found.setdefault((sign.kind, sign.device, sign.replica), []).append(sign.only(new))
        for whose in (None, file.replica):
            covered[whose] = max(covered.get(whose, -np.inf), file.last_ms)
    return tuple(
        replace(
            own[0],
            times_ms=np.concatenate([sign.times_ms for sign in own]),
            values=np.concatenate([sign.values for sign in own]),
        )
        for own in found.values()
    )
