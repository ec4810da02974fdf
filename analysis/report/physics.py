"""Plausibility of a run: its claims against what its devices can do, and the samples behind them.

Nothing here proves that the work was done. A claim beyond a limit was not, or its times, devices or
samples are not those of the run. Limits are wide, so that no honest run meets one.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from statistics import median

import numpy as np

from aiperf.cli.units import si
from aiperf.records.columns import blocks_of
from aiperf.rules.official_run import PRECISION_BITS
from aiperf.run_directory.recorded_files import changed_files
from analysis.reading.run_data import RunData
from analysis.reading.telemetry import NodeSeries
from analysis.report import sampling
from analysis.report.devices import Machine, crowded_hosts, machines, memory_limits, replicas_of_node
from analysis.report.energy.metered import metered
from analysis.report.estimates import DevicePart, FindingPart, PhysicsPart
from analysis.report.rates.pace import NEARLY, Kind, are_slower, paces, together, trained_of
from analysis.report.rates.work_intervals import WorkInterval, WorkIntervalColumns, work_intervals
from analysis.report.sampling import WorkIntervals, by_host, mean_while_working, most_accelerators

PEAK_FACTOR = 2.0
"""Upper limit for claimed operations per second, in peaks. Algorithms such as Winograd's need fewer
multiplications than are counted, and a boost clock is above the data sheet's."""

LEAST_MEMORY_SHARE = 0.25
"""Least memory of a search, in the replica's part of the device: the program takes half or more
(`search_space.limits.usable_memory`), and devices of one node may differ."""

LATENESS_MS = 2000
"""The end of an epoch may be noted this late, so that the next one seems shorter."""

PACE_FACTOR = 3.0
"""Upper limit for the images per second of a replica, in medians of replicas with equal work and
devices."""

PACE_REPLICAS = 3
"""Fewest replicas whose pace is compared."""

COVERED = 0.9
"""Least share of a replica's working time with samples near it."""

REACH_INTERVALS, LEAST_REACH_MS = 3, 10_000
"""A sample covers this many intervals before and after it, at least this long."""

IDLE_PERCENT = 1.0
"""Use of the accelerators, in percent, that training is above, as a mean of its samples."""

POWER_SHARES = 0.05, 1.3
"""Least and most mean power of training, in the device's limit: idle devices draw more than the
first; boards with a higher limit than the data sheet's draw less than the second.
"""

EFFICIENCY_FACTOR = 3.0
"""Upper limit for the operations per joule, in (peak / power limit): low clocks save energy."""


LEAST_METERED = 0.8
"""Least energy at the meters of all nodes, in that of the sensors inside of them: sensors are wrong
by a few percent, and fans and the conversion of power come on top."""


@dataclass(frozen=True, slots=True)
class Finding:
    """An implausible claim: place, value and limit, in words."""

    kind: str
    where: str
    found: str
    limit: str

    def __str__(self) -> str:
        return f"{self.where}: {self.found} (limit: {self.limit})"


class DevicesAtWork:
    """The work, the devices and the samples of a run next to one another."""

    def __init__(self, data: RunData) -> None:
        self.data = data
        self.simulated = data.manifest.config.training.trainer == "simulated"
        """A simulated run claims nothing about its devices."""
        self.machines = machines(data)
        self.work = work_intervals(data)
        self.nodes = by_host(data.telemetry.nodes)

    @cached_property
    def of_replica(self) -> dict[int, WorkIntervalColumns]:
        """The intervals of each replica that worked."""
        every = self.work.every
        every = every.only(np.argsort(every.replicas, kind="stable"))
        return {replica: every.only(slice(begin, end)) for replica, begin, end in blocks_of(every.replicas)}

    @cached_property
    def busy(self) -> dict[int, WorkIntervals]:
        """The working time of each replica."""
        return {replica: sampling.working_time(own) for replica, own in self.of_replica.items()}

    def bits(self, trial: int) -> int:
        """Width of the arithmetic of a trial; the narrowest if it is unknown."""
        begun = self.data.ledger.trials[trial].begun
        return PRECISION_BITS.get(begun.precision, 16) if begun is not None else 16


def findings(data: RunData) -> tuple[Finding, ...]:
    """Find the implausible claims of a run, by kind. A simulated run is not checked."""
    return findings_of(DevicesAtWork(data))


def findings_of(run: DevicesAtWork) -> tuple[Finding, ...]:
    """Find implausible claims in what was put together before."""
    if run.simulated:
        return ()
    return (
        *_devices(run),
        *_operations(run),
        *_totals(run),
        *_pace(run),
        *_telemetry(run),
        *_loads(run),
        *_meters(run),
        *_recorded(run),
    )


def _devices(run: DevicesAtWork) -> Iterator[Finding]:
    """system.json, trainers and telemetry must agree about the accelerators."""
    for replica in run.of_replica:
        where, machine = f"replica {replica}", run.machines.get(replica)
        facts = run.data.system.get(str(replica))
        if machine is None or facts is None:
            yield Finding("devices", where, "no description of its node in system.json", "one of each that worked")
            continue
        named = sorted(name for name in machine.ranks if name != "cpu")
        if named and not facts.accelerators:
            found = f"system.json has no accelerator, the trainers report {', '.join(named)}"
            yield Finding("devices", where, found, "the same devices")
        elif any(name != machine.name for name in named):
            found = f"system.json has {machine.name}, the trainers report {', '.join(named)}"
            yield Finding("devices", where, found, "the same devices")
    for host, ranks, devices in crowded_hosts(run.data):
        yield Finding("devices", f"node {host}", f"{ranks} ranks on {devices} accelerators", "one rank on each")
    yield from _memory(run)
    seen = set()
    for replica in run.of_replica:
        facts = run.data.system.get(str(replica))
        node = run.nodes.get(facts.host or "") if facts is not None else None
        # Replicas that share a node describe it alike: one finding is enough for all of them.
        if facts is None or node is None or (facts.host, facts.accelerators) in seen:
            continue
        seen.add((facts.host, facts.accelerators))
        sampled = most_accelerators(node)
        if sampled != (facts.accelerators or 0):
            found = f"{facts.accelerators or 0} accelerators in system.json, {sampled} in its samples"
            yield Finding("devices", f"node {facts.host}", found, "the same number")


def _memory(run: DevicesAtWork) -> Iterator[Finding]:
    """Searches whose limit is above the memory of the device, or far below the replica's part.

    A resumed replica may have moved. A low limit keeps networks small and fast.
    """
    limits, share = memory_limits(run.data), replicas_of_node(run.data)
    for replica in run.of_replica:
        facts = run.data.system.get(str(replica))
        # system.json describes the last node of a replica only.
        if facts is None or len(run.data.ledger.replicas[replica].arrivals) > 1:
            continue
        device, chosen = facts.accelerator_memory_bytes, run.data.manifest.config.replica.accelerator_memory_gib
        if device is None or chosen is not None or replica not in limits:
            continue
        (lowest, highest), where = limits[replica], f"replica {replica}"
        # Replicas of a node are dealt out to its accelerators by turns: the fullest one has this
        # many.
        sharers = -(-share // max(1, facts.accelerators or 0))
        least = int(LEAST_MEMORY_SHARE * device) // sharers
        if highest > device:
            yield Finding("devices", where, f"a search for {highest} bytes of memory", f"{device} bytes")
        if lowest < least:
            yield Finding("devices", where, f"a search for {lowest} bytes of memory", f"at least {least} bytes")


def _operations(run: DevicesAtWork) -> Iterator[Finding]:
    """The fastest interval of each replica that is beyond its devices."""
    worst: dict[int, tuple[float, WorkInterval, float]] = {}
    for replica, every in run.of_replica.items():
        machine = run.machines.get(replica)
        if machine is None:
            continue
        for trial, rows in every.spans:
            most = PEAK_FACTOR * machine.peak(run.bits(trial)) * machine.count
            if are_slower(every, rows, most, LATENESS_MS):
                continue
            for piece in together(every.only(rows)):
                # An epoch's end may be noted late, and the next epoch is then too short in the
                # records.
                ops = piece.operations * 1000 / (piece.duration_ms + LATENESS_MS)
                if ops > most and ops > worst.get(piece.replica, (0.0,))[0]:
                    worst[piece.replica] = ops, piece, most
    for replica, (ops, piece, most) in sorted(worst.items()):
        machine = run.machines[replica]
        where = f"trial {piece.trial} on replica {replica}, from epoch {piece.first_epoch}"
        yield Finding("operations", where, f"{si(ops, 'OPS')} in {piece.duration_ms / 1000:g} s", _limit(machine, most))


def _limit(machine: Machine, most: float) -> str:
    names = f"{machine.count} x {machine.device.name if machine.device else machine.name}"
    fastest = ", compared with the fastest known" if machine.device is None and not machine.on_cpus else ""
    return f"{si(most, 'OPS')}, twice the peak of {names}{fastest}"


def _totals(run: DevicesAtWork) -> Iterator[Finding]:
    """Work of a replica that its devices could not have done in the whole run."""
    seconds = (run.data.duration_ms + LATENESS_MS) / 1000
    for replica, own in run.of_replica.items():
        machine = run.machines.get(replica)
        if machine is None:
            continue
        # The quick test uses the lowest peak of all trials. If even that leaves time, so does the
        # sum over the intervals, which takes long.
        possible = {trial: machine.peak(run.bits(trial)) for trial, _ in own.spans}
        if own.total_operations / (PEAK_FACTOR * min(possible.values()) * machine.count) < NEARLY * seconds:
            continue
        # The seconds that each trial needs at least, one after another.
        needed = sum(piece.operations / (PEAK_FACTOR * possible[piece.trial] * machine.count) for piece in own)
        if needed > seconds:
            ops = own.total_operations / seconds
            most = PEAK_FACTOR * max(possible.values()) * machine.count
            yield Finding("operations", f"replica {replica}", f"{si(ops, 'OPS')} over the run", _limit(machine, most))


def _pace(run: DevicesAtWork) -> Iterator[Finding]:
    """Replicas that claim far more images per second than others with the same work and devices."""

    def kind_of(trial: int, replica: int) -> Kind | None:
        begun, machine = run.data.ledger.trials[trial].begun, run.machines.get(replica)
        if begun is None or machine is None:
            return None
        return (
            # Everything that makes one honest replica faster than another is in the kind: batch
            # size or precision alone can change a pace by more than `PACE_FACTOR`.
            trained_of(begun),
            begun.hyperparameters.get("batch_size"),
            begun.precision,
            machine.name,
            machine.count,
        )

    for kind, found in paces(run.work, kind_of, LATENESS_MS, PACE_REPLICAS):
        medians = {replica: median(values) for replica, values in sorted(found.items())}
        # A median of medians: neither a slow start of one replica nor a single forger moves it.
        usual = median(medians.values())
        for replica, pace in medians.items():
            if pace > PACE_FACTOR * usual:
                where = f"replica {replica}, {kind[0]}"
                limit = f"{PACE_FACTOR:g} x {si(usual)}, the median of {len(medians)} replicas"
                yield Finding("images", where, f"{si(pace)} images per second", limit)


def _telemetry(run: DevicesAtWork) -> Iterator[Finding]:
    """Replicas without samples while they worked."""
    interval_ms = run.data.manifest.config.telemetry.interval * 1000
    if interval_ms <= 0:
        return
    reach_ms = max(REACH_INTERVALS * interval_ms, LEAST_REACH_MS)
    for replica, working in run.busy.items():
        facts = run.data.system.get(str(replica))
        if facts is None:
            continue  # reported as a node without a description
        node = run.nodes.get(facts.host or "")
        times = node.column("time_ms") if node is not None else np.array([])
        share = sampling.covered_share(times, reach_ms, working)
        if share < COVERED:
            where, limit = f"replica {replica} on node {facts.host}", f"at least {COVERED:.0%}"
            yield Finding("telemetry", where, f"samples cover {100 * share:.1f} % of its working time", limit)


def _recorded(run: DevicesAtWork) -> Iterator[Finding]:
    """Nodes and samples that are not those that the primary named at the end."""
    end = run.data.ledger.run_ended
    for name, problem in changed_files(run.data.paths, end.body.files if end is not None else ()):
        yield Finding("files", name, problem, "as the record of the end names it")


def _loads(run: DevicesAtWork) -> Iterator[Finding]:
    """Use, power and energy of the accelerators of each node while its replicas worked."""
    for host, replicas in _hosts(run).items():
        node, machine = run.nodes.get(host), run.machines[replicas[0]]
        if node is None:
            continue
        working = sampling.working_time(*(run.of_replica[replica] for replica in replicas))
        use = mean_while_working(node, "accelerator_percent", working)
        if use is not None and use < IDLE_PERCENT:
            found = f"accelerators were in use {use:.1f} % of the working time"
            yield Finding("utilisation", f"node {host}", found, f"above {IDLE_PERCENT:g} %")
        yield from _power(node, machine, working)
        yield from _energy(run, node, replicas)


def _hosts(run: DevicesAtWork) -> Mapping[str, list[int]]:
    """The replicas that worked on accelerators, by node."""
    found: dict[str, list[int]] = defaultdict(list)
    for replica in run.of_replica:
        machine = run.machines.get(replica)
        if machine is not None and machine.host is not None and not machine.on_cpus:
            found[machine.host].append(replica)
    return found


def _power(node: NodeSeries, machine: Machine, working: WorkIntervals) -> Iterator[Finding]:
    count = most_accelerators(node)
    power_w = mean_while_working(node, "accelerator_power_w", working)
    if power_w is None or not count or machine.device is None or machine.device.power_w is None:
        return
    low, high = (share * machine.device.power_w for share in POWER_SHARES)
    if not low <= power_w / count <= high:
        found = f"{power_w / count:.0f} W for each accelerator while it trained"
        yield Finding("power", f"node {node.host}", found, f"{low:.0f} to {high:.0f} W for {machine.device.name}")


def _energy(run: DevicesAtWork, node: NodeSeries, replicas: list[int]) -> Iterator[Finding]:
    """Fewer joules than the operations of the node's replicas need."""
    data, machine = run.data, run.machines[replicas[0]]
    if data.start_ms is None or machine.device is None or machine.device.power_w is None:
        return
    used = node.accelerator_energy(np.array([data.start_ms, data.end_ms], dtype=np.float64))
    if used is None:
        return
    every = [run.of_replica[replica] for replica in replicas]
    # The narrowest arithmetic of any of them has the highest peak, and so the lowest limit.
    bits = min(run.bits(trial) for own in every for trial, _ in own.spans)
    # A replica of several nodes does its work on all of them alike, and this is the energy of one.
    operations = sum(own.total_operations for own in every) / data.manifest.config.replica.nodes
    joules = float(used[1] - used[0])
    least = operations / (EFFICIENCY_FACTOR * machine.peak(bits) / machine.device.power_w)
    if joules < least:
        limit = f"{si(least, 'J')}, a third of its power limit / peak for each operation"
        yield Finding("energy", f"node {node.host}", f"{si(joules, 'J')} for {si(operations)} operations", limit)


def _meters(run: DevicesAtWork) -> Iterator[Finding]:
    """Fewer joules at meters outside of the nodes than the sensors inside of them say.

    Meters are what the owner declares, and nothing in the records names their files.
    """
    data, (meters, _) = run.data, metered(run.data)
    if meters is None or data.start_ms is None:
        return
    end = np.array([data.end_ms], dtype=np.float64)
    parts = [float(part[0]) for part in data.telemetry.energy(data.start_ms, end) if part is not None]
    joules, sensors = float(meters.joules(end)[0]), sum(parts)
    if joules < LEAST_METERED * sensors:
        limit = f"{100 * LEAST_METERED:.0f} % of {si(sensors, 'J')}, by the sensors of the nodes"
        yield Finding("energy", "meters", f"{si(joules, 'J')} from the release to the end", limit)


def physics_part(run: DevicesAtWork, found: tuple[Finding, ...]) -> PhysicsPart:
    """The part of the report; a simulated run has no devices."""
    groups: dict[str, list[Machine]] = defaultdict(list)
    for replica in () if run.simulated else run.of_replica:
        if replica in run.machines:
            groups[run.machines[replica].name].append(run.machines[replica])
    return PhysicsPart(
        checked=not run.simulated,
        devices=tuple(_device_part(run, name, own) for name, own in sorted(groups.items())),
        unknown=tuple(name for name, own in sorted(groups.items()) if own[0].device is None and not own[0].on_cpus),
        findings=tuple(FindingPart(**asdict(item)) for item in found),
    )


def _device_part(run: DevicesAtWork, name: str, own: list[Machine]) -> DevicePart:
    work: dict[int, int] = defaultdict(int)
    for machine in own:
        every = run.of_replica[machine.replica]
        for trial, rows in every.spans:
            work[run.bits(trial)] += sum(every.operations[rows].tolist())
    # A run may mix widths, but a share needs one peak: that of the width with most of the work.
    bits = max(work, key=lambda width: work[width])
    device, count = own[0].device, _devices_of(run, own)
    peak = device.peak(bits) if device is not None else None
    duration_s = run.data.duration_ms / 1000
    ops = sum(work.values()) / duration_s if duration_s > 0 else 0.0
    return DevicePart(
        name=name,
        model=device.name if device is not None else None,
        devices=count,
        precision_bits=bits,
        peak_ops=peak,
        power_w=device.power_w if device is not None else None,
        ops=ops,
        share_of_peak=ops / (count * peak) if peak and count and not run.simulated else None,
        source=device.source if device is not None else None,
    )


def _devices_of(run: DevicesAtWork, own: list[Machine]) -> int:
    """Devices of these machines; those of a node that several replicas share count once."""
    nodes = run.data.manifest.config.replica.nodes
    by_node: dict[object, int] = defaultdict(int)
    for machine in own:
        facts = run.data.system.get(str(machine.replica))
        described = (facts.cpu_count if machine.on_cpus else facts.accelerators) if facts is not None else None
        # Only the first node of a replica is described: its other nodes are taken to be like it.
        node = machine.host or machine.replica
        by_node[node] = max(by_node[node], described * nodes if described else machine.count)
    return sum(by_node.values())
