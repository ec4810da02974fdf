"""Energy by meters outside of the nodes, joined with the run by time, and its level."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property

import numpy as np

from aiperf.cli.units import count
from aiperf.clock import parse_utc
from analysis.reading.meters import MeterSeries
from analysis.reading.run_data import RunData
from analysis.reading.samples import Series
from analysis.report.energy.levels import METHODOLOGY, Measurement, aspects_of, level_of, words_of
from analysis.report.energy.parts import MeteredPart, MeterPart


@dataclass(frozen=True, eq=False)
class Metered:
    """The meters of a run that can be used together, from its release to its end."""

    data: RunData
    series: tuple[MeterSeries, ...]
    problems: tuple[str, ...]

    @cached_property
    def hosts(self) -> frozenset[str]:
        """The nodes of the run."""
        return hosts_of(self.data)

    @cached_property
    def nodes(self) -> frozenset[str]:
        """The nodes of the run behind meters."""
        return frozenset(host for each in self.series for host in behind(each, self.hosts)[0])

    @property
    def span_ms(self) -> tuple[int, int]:
        """Release and end."""
        return self.data.start_ms or 0, self.data.end_ms

    def joules(self, moments_ms: Series) -> Series:
        """Joules from the release to each moment: extrapolated to all nodes, with the estimates."""
        start_ms = float(self.span_ms[0])
        every = np.concatenate([[start_ms], moments_ms])
        found = np.zeros(len(moments_ms))
        for each in self.series:
            own = each.curve.joules_at(every)
            found += self._weight(each) * (own[1:] - own[0])
        return np.asarray(found + self._estimated_w * (moments_ms - start_ms) / 1000, np.float64)

    @property
    def facility_j(self) -> float:
        """The part of the joules from meters of the facility, which have what a PUE adds."""
        whole = [each for each in self.series if each.meter.scope == "facility"]
        return sum(self._weight(each) * each.curve.used(*self.span_ms) for each in whole)

    def part(self) -> MeteredPart:
        """The part of the report."""
        start_ms, end_ms = self.span_ms
        seconds = (end_ms - start_ms) / 1000
        joules = float(self.joules(np.array([end_ms], np.float64))[0])
        measured = sum(each.curve.used(start_ms, end_ms) for each in self.series)
        meters = tuple(sorted((self._meter(each) for each in self.series), key=lambda part: part.name))
        idle = [part.idle_w for part in meters]
        idle_w = None
        if None not in idle:
            weights = {each.meter.name: self._weight(each) for each in self.series}
            idle_w = self._estimated_w + sum(weights[part.name] * (part.idle_w or 0.0) for part in meters)
        aspects = aspects_of(self._measurement(measured / seconds, idle_w is not None))
        return MeteredPart(
            joules=joules,
            measured_j=measured,
            estimated_j=self._estimated_w * seconds,
            mean_w=joules / seconds,
            idle_w=idle_w,
            idle_share=idle_w * seconds / joules if idle_w is not None and joules > 0 else None,
            scope=self._scope(),
            nodes_measured=len(self.nodes),
            nodes=len(self.hosts),
            level=level_of(aspects),
            words=words_of(level_of(aspects), aspects),
            methodology=METHODOLOGY,
            aspects=aspects,
            meters=meters,
        )

    def _weight(self, each: MeterSeries) -> float:
        """The factor of extrapolation; what measures no node is taken to be whole."""
        return len(self.hosts) / len(self.nodes) if each.meter.nodes and self.nodes else 1.0

    @cached_property
    def _measured(self) -> frozenset[str]:
        return frozenset(name for each in self.series for name in each.meter.includes)

    @cached_property
    def _estimated(self) -> frozenset[str]:
        estimates = self.data.meters.document.estimate
        return frozenset(each.subsystem for each in estimates) - self._measured

    @cached_property
    def _estimated_w(self) -> float:
        # What a meter measures needs no estimate.
        return sum(each.watts for each in self.data.meters.document.estimate if each.subsystem in self._estimated)

    def _scope(self) -> str:
        names = ["nodes", *sorted(self._measured), *(f"{name} (estimated)" for name in sorted(self._estimated))]
        return ", ".join(names)

    def _meter(self, each: MeterSeries) -> MeterPart:
        start_ms, end_ms = self.span_ms
        own, others = behind(each, self.hosts)
        curve, meter = each.curve, each.meter
        return MeterPart(
            name=meter.name,
            device=meter.device,
            scope=meter.scope,
            nodes=len(own),
            other_nodes=others,
            includes=tuple(meter.includes),
            joules=curve.used(start_ms, end_ms),
            readings=curve.readings(start_ms, end_ms),
            interval_s=curve.interval_s,
            longest_s=curve.longest_s(start_ms, end_ms),
            covered_share=curve.covered_ms(start_ms, end_ms) / (end_ms - start_ms),
            resets=curve.resets,
            unreadable=each.unreadable,
            idle_w=idle_power(each),
        )

    def _measurement(self, watts: float, idle: bool) -> Measurement:
        start_ms, end_ms = self.span_ms
        curves = [each.curve for each in self.series]
        arrivals = [one.time_ms for entry in self.data.ledger.replicas.values() for one in entry.arrivals]
        first_ms = min([start_ms, *arrivals])
        sampled = [_sampled_s(each) for each in self.series if each.meter.joules is None]
        accuracies = [each.meter.accuracy_percent for each in self.series]
        return Measurement(
            core_s=(end_ms - start_ms) / 1000,
            counters=all(each.meter.joules is not None for each in self.series),
            sampled_s=max(sampled, default=None),
            longest_s=max(curve.longest_s(start_ms, end_ms) for curve in curves),
            ends_s=max(curve.ends_s(start_ms, end_ms) for curve in curves),
            readings=min(curve.readings(start_ms, end_ms) for curve in curves),
            whole_run=all(curve.times_ms[0] <= first_ms for curve in curves),
            idle=idle,
            nodes=len(self.nodes),
            all_nodes=len(self.hosts),
            watts=watts,
            measured=self._measured,
            estimated=self._estimated,
            absent=frozenset(self.data.meters.document.absent),
            locations=frozenset(each.meter.location for each in self.series),
            accuracy_percent=None if None in accuracies else max(filter(None, accuracies)),
        )


def metered(data: RunData) -> tuple[Metered | None, tuple[str, ...]]:
    """The meters of a run with their problems; no meters if they do not add up to its energy."""
    problems = list(data.meters.problems)
    if not data.meters.series or data.start_ms is None or data.end_ms <= data.start_ms:
        return None, tuple(problems)
    hosts = hosts_of(data)
    used = []
    for each in data.meters.series:
        if each.curve.times_ms[0] > data.start_ms or each.curve.times_ms[-1] < data.end_ms:
            problems.append(f"meters/{each.meter.name}: its readings do not span the run; see clock_ahead_s")
        elif each.meter.nodes and not behind(each, hosts)[0]:
            problems.append(f"meters/{each.meter.name}: none of its nodes is of the run")
        else:
            used.append(each)
    complete = len(used) == len(data.meters.series) and not data.meters.problems
    overlaps = list(_overlaps(used, hosts))
    problems += overlaps
    if overlaps or not complete or not any(each.meter.nodes for each in used):
        # A sum without one of the meters would look like a saving.
        return None, tuple(problems or ["meters: none of them measures a node"])
    return Metered(data, tuple(used), tuple(problems)), tuple(problems)


def hosts_of(data: RunData) -> frozenset[str]:
    """The nodes of a run: as they described themselves, and as they were sampled."""
    described = {facts.host for facts in data.system.values() if facts.host}
    return frozenset(described | {node.host for node in data.telemetry.nodes})


def behind(each: MeterSeries, hosts: Iterable[str]) -> tuple[frozenset[str], int]:
    """The nodes of the run behind a meter, and how many others the owner names."""

    def named(host: str, pattern: str) -> bool:
        # Owners write names with or without a domain, and nodes have either.
        return fnmatchcase(host, pattern) or fnmatchcase(host.partition(".")[0], pattern)

    own = frozenset(host for host in hosts if any(named(host, pattern) for pattern in each.meter.nodes))
    return own, sum(not any(named(host, pattern) for host in hosts) for pattern in each.meter.nodes)


def idle_power(each: MeterSeries) -> float | None:
    """Mean power in the declared time; None without one, or if the readings do not span it."""
    if each.meter.idle is None:
        return None
    begin_ms, end_ms = (parse_utc(moment) - 1000 * each.meter.clock_ahead_s for moment in each.meter.idle)
    if each.curve.times_ms[0] > begin_ms or each.curve.times_ms[-1] < end_ms:
        return None
    return each.curve.used(begin_ms, end_ms) / ((end_ms - begin_ms) / 1000)


def _sampled_s(each: MeterSeries) -> float:
    """Seconds from one sample of power to the next."""
    # A reading that is no mean is one sample, however often the meter takes others.
    declared_s = each.meter.sampled_s if each.meter.readings == "average" else None
    return declared_s or each.curve.interval_s


def _overlaps(series: Sequence[MeterSeries], hosts: frozenset[str]) -> Iterable[str]:
    """Nodes whose energy would count twice, or by one of several feeds alone."""
    feeds: dict[str, dict[str, str]] = defaultdict(dict)
    for each in series:
        own = feeds[each.meter.feed]
        for host in sorted(behind(each, hosts)[0]):
            if host in own:
                yield f"meters: {host} is behind {own[host]} and {each.meter.name}: drop one, or name their feeds"
                return
            own[host] = each.meter.name
    fed = [frozenset(own) for own in feeds.values() if own]
    if len(set(fed)) > 1:
        lacking = frozenset.union(*fed) - frozenset.intersection(*fed)
        yield f"meters: {count(len(lacking), 'node')} behind some of the feeds only, such as {min(lacking)}"


def basis_of(part: MeteredPart) -> str:
    """The words that measurements have in common whose energies can be compared."""
    return f"meters, Level {part.level}: {part.scope}" if part.level else f"meters, below Level 1: {part.scope}"
