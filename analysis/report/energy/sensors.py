"""Use of every node, energy and operations per joule: by the nodes' sensors, or by meters."""

from collections.abc import Collection, Mapping

import numpy as np

from aiperf.rules.official_run import MAXIMUM_ERROR
from aiperf.rules.work import WorkColumns
from analysis.reading.run_data import RunData
from analysis.reading.samples import Series
from analysis.reading.telemetry import NodeSeries, Telemetry
from analysis.report.energy.metered import basis_of, hosts_of, metered
from analysis.report.energy.parts import ACCELERATORS, CPUS, J_PER_KWH, EnergyPart, FacilityPart, UsagePart


def usage(data: RunData, telemetry: Telemetry) -> tuple[UsagePart, ...]:
    """One row per node, within the run."""
    start_ms = data.start_ms
    if start_ms is None:
        return ()
    return tuple(_node(node, start_ms, data.end_ms) for node in telemetry.nodes)


def _node(node: NodeSeries, start_ms: int, end_ms: int) -> UsagePart:
    times = node.column("time_ms")
    within = (times >= start_ms) & (times <= end_ms)
    memory = node.column("memory_used_bytes")[within]
    span = np.array([start_ms, end_ms], dtype=np.float64)
    parts = [part[1] - part[0] for part in (node.accelerator_energy(span), node.cpu_energy(span)) if part is not None]
    return UsagePart(
        host=node.host,
        samples=int(within.sum()),
        accelerators=int(np.nanmax(node.column("accelerators"), initial=0.0)),
        accelerator_percent=node.mean("accelerator_percent", start_ms, end_ms),
        accelerator_memory_percent=node.mean("accelerator_memory_percent", start_ms, end_ms),
        multiprocessors_percent=node.mean("multiprocessors_percent", start_ms, end_ms),
        tensor_cores_percent=node.mean("tensor_cores_percent", start_ms, end_ms),
        cpu_percent=node.mean("cpu_percent", start_ms, end_ms),
        memory_peak_bytes=int(np.nanmax(memory)) if memory.size and not np.isnan(memory).all() else None,
        energy_j=float(sum(parts)) if parts else None,
    )


def energy(data: RunData, telemetry: Telemetry, work: WorkColumns | None, operations: int) -> EnergyPart:
    """Energy from start to end, and to the best and to an official error of `work`.

    By meters outside of the nodes if they measure the run, else by the nodes' own sensors.
    """
    start_ms = data.start_ms if data.start_ms is not None else data.end_ms
    best_ms, official_ms = _error_moments(work, data.end_ms)
    # The end stands in for a moment that never came; the energy until it is left out below.
    ends_ms = [data.end_ms, *(ms if ms is not None else data.end_ms for ms in (best_ms, official_ms))]
    moments = np.array(ends_ms, dtype=np.float64)
    accelerators, cpus = telemetry.energy(start_ms, moments)
    meters, problems = metered(data)
    part = meters.part() if meters is not None else None
    hosts = _hosts(telemetry, np.array([start_ms, data.end_ms], np.float64))
    names = _complete(data, telemetry, hosts)
    total = meters.joules(moments) if meters is not None else _total({ACCELERATORS: accelerators, CPUS: cpus}, names)
    return EnergyPart(
        accelerators_j=float(accelerators[0]) if accelerators is not None else None,
        cpus_j=float(cpus[0]) if cpus is not None else None,
        hosts_measured=len(hosts[ACCELERATORS] | hosts[CPUS]),
        hosts=len(telemetry.nodes),
        uncovered_share=_uncovered(telemetry, start_ms, data.end_ms),
        operations_per_joule=operations / float(total[0]) if total is not None and total[0] > 0 else None,
        best_error_j=float(total[1]) if total is not None and best_ms is not None else None,
        official_error_j=float(total[2]) if total is not None and official_ms is not None else None,
        metered=part,
        facility=_facility(
            data, float(total[0]) if total is not None else None, meters.facility_j if meters is not None else 0.0
        ),
        basis=basis_of(part) if part is not None else f"sensors of {' and '.join(names)}" * bool(names),
        problems=problems,
    )


def _hosts(telemetry: Telemetry, span_ms: Series) -> Mapping[str, set[str]]:
    """The nodes whose energy each kind of sensors measures."""
    return {
        ACCELERATORS: {node.host for node in telemetry.nodes if node.accelerator_energy(span_ms) is not None},
        CPUS: {node.host for node in telemetry.nodes if node.cpu_energy(span_ms) is not None},
    }


def _complete(data: RunData, telemetry: Telemetry, measured: Mapping[str, set[str]]) -> list[str]:
    """The kinds of sensors that leave out no node; none if the energy of a node is missing.

    All accelerators must report. CPU packages of a part of the nodes do not count.
    """
    every, accelerators = hosts_of(data), measured[ACCELERATORS]
    having = {facts.host for facts in data.system.values() if facts.host and facts.accelerators}
    having |= {node.host for node in telemetry.nodes if np.nanmax(node.column("accelerators"), initial=0.0) > 0}
    if having - accelerators:
        return []
    names = [ACCELERATORS] * bool(accelerators)
    if every and measured[CPUS] >= every:
        return [*names, CPUS]
    return names if accelerators >= every else []


def _facility(data: RunData, joules: float | None, whole_j: float) -> FacilityPart | None:
    """The energy of the run by the owner's figures, whatever measured it.

    `whole_j`: the part of the joules from meters of the facility, which no PUE multiplies.
    """
    declared = data.manifest.config.energy
    if declared.pue is None and declared.co2_g_per_kwh is None:
        return None
    whole = whole_j + (joules - whole_j) * declared.pue if joules is not None and declared.pue is not None else None
    emitting = whole if whole is not None else joules
    seconds = data.duration_ms / 1000
    return FacilityPart(
        pue=declared.pue,
        joules=whole,
        mean_w=whole / seconds if whole is not None and seconds > 0 else None,
        co2_g_per_kwh=declared.co2_g_per_kwh,
        co2_kg=emitting / J_PER_KWH * declared.co2_g_per_kwh / 1000
        if emitting is not None and declared.co2_g_per_kwh is not None
        else None,
        source=declared.source or "",
    )


def _uncovered(telemetry: Telemetry, start_ms: int, end_ms: int) -> float | None:
    """The share of the accelerators' time of which their counters do not say what was used."""
    cards = [card for node in telemetry.nodes if node.counts_energy for card in node.cards]
    if not cards or end_ms <= start_ms:
        return None
    covered = sum(card.covered_ms(start_ms, end_ms) for card in cards)
    return max(0.0, 1 - covered / (len(cards) * (end_ms - start_ms)))


def _total(found: Mapping[str, Series | None], names: Collection[str]) -> Series | None:
    """The sum of the named kinds of sensors; of all that report if none is complete."""
    parts = [part for name, part in found.items() if part is not None and name in (names or found)]
    return np.sum(parts, axis=0) if parts else None


def _error_moments(work: WorkColumns | None, end_ms: int) -> tuple[int | None, int | None]:
    """The times at which the best error and an official error were first reached."""
    if work is None:
        return None, None
    times, errors = work.errors()
    times, errors = times[times <= end_ms], errors[times <= end_ms]
    if not len(times):
        return None, None
    official = times[errors <= MAXIMUM_ERROR]
    return int(times[errors == errors.min()].min()), int(official.min()) if len(official) else None
