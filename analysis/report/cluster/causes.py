"""The phase or the fact of its node in which a slow replica differs from the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import exp
from operator import or_
from statistics import median

from aiperf.clock import format_utc
from aiperf.machine.health_kinds import SLOWED
from analysis.reading.telemetry import NodeSeries
from analysis.report.model import ReplicaPart
from analysis.report.phases import WAITS
from analysis.report.sampling import WorkIntervals, inside, lowest_while_working, mean_while_working

WORKING = ("train", *WAITS.values(), "evaluate", "checkpoint", "storage")
"""Phases between the beginnings of two epochs; training waits for images (`input`), for the
gradients of all ranks (`all-reduce`), and for parameter servers (`servers`).
"""

NAMES = {
    "input": "waiting for images",
    "all-reduce": "all-reduce, with waits for its slowest rank,",
    "servers": "waiting for parameter servers",
}
"""Words for phases that are parts of training."""

BETWEEN = ("search", "start", "build", "checkpoint", "storage", "idle")
"""Phases between two trainings."""

SLOWER_CLOCK = 0.97
"""Share of the others' clock below which a clock explains a slow training."""

BUSIER_PERCENT = 20.0
"""Points of CPU use above the others' from which on other programs explain a slow training."""

FEWER_CPUS = 0.9
"""Share of the others' CPUs up to which having fewer explains a slow training (our choice)."""

HELD = 0.05
"""Seconds of each second of work, above the others', from which on a CPU quota is the cause."""

QUOTA = "cpu_quota_held_s"


@dataclass(frozen=True, slots=True)
class Cause:
    """The phase or resource that differs, and the words that support it."""

    phase: str
    evidence: str


def cause_of(
    measure: str, own: ReplicaPart, others: Sequence[ReplicaPart], effect: float, loads: Mapping[int, Load]
) -> Cause:
    """Find the phase that exceeds the others' most; `effect` is the logarithm of a factor."""
    phases = WORKING if measure == "work" else BETWEEN
    # The effect is the logarithm of its rate over that of the others: what they do in a second
    # takes it exp(-effect) seconds.
    its = _per_work(own, phases, exp(-effect)) if measure == "work" else _per_trial(own, phases)
    usual = [_per_work(each, phases, 1.0) if measure == "work" else _per_trial(each, phases) for each in others]
    excess = {phase: its[phase] - median([each[phase] for each in usual] or [0.0]) for phase in phases}
    phase = max(phases, key=lambda name: excess[name])
    if measure == "between":
        return Cause(phase, f"{phase} takes {excess[phase]:.1f} s longer for each training than usual")
    found = _of_quota(loads, own, others)
    # A rank on a slower accelerator makes the others wait for it in their all-reduce.
    if found is None and phase in ("train", "evaluate", "all-reduce"):
        found = _of_node(loads, own, others)
    if found is None and phase in ("train", "evaluate", "all-reduce", "input"):
        found = _of_confinement(loads, own, others)
    name = NAMES.get(phase, phase)
    return found or Cause(phase, f"{name} takes {excess[phase]:.3f} s longer for each second of the others' work")


def _per_work(part: ReplicaPart, phases: Sequence[str], factor: float) -> dict[str, float]:
    """Seconds of each phase for one second of work at the pace of the others."""
    seconds = {phase: part.phases_s.get(phase, 0.0) for phase in phases}
    for wait, name in WAITS.items():
        seconds[name] = min(getattr(part, wait) or 0.0, seconds["train"])
        seconds["train"] -= seconds[name]
    total = sum(seconds.values())
    return {phase: factor * own_s / total if total else 0.0 for phase, own_s in seconds.items()}


def _per_trial(part: ReplicaPart, phases: Sequence[str]) -> dict[str, float]:
    return {phase: part.phases_s.get(phase, 0.0) / max(1, part.trials) for phase in phases}


@dataclass(frozen=True, slots=True)
class Load:
    """The node of a replica while it worked, by its samples; None: not sampled."""

    clock_mhz: float | None = None
    """Mean clock of the accelerators."""
    lowest: tuple[float, float] | None = None
    """Time in UTC milliseconds and value of the lowest sample of it."""
    cpu_percent: float | None = None
    held: float | None = None
    """Seconds for which a CPU quota held its threads up, for each second of work."""
    slowed: int = 0
    """Clock-event reasons that slowed an accelerator down, as bits."""
    cpus: int | None = None
    """CPUs of its node that the replica may use; None: not described."""


def load_of(node: NodeSeries | None, working: WorkIntervals, alone: bool = True, whole: bool = True) -> Load:
    """The load of a node in the working time of a replica.

    `alone`: no other replica is on it, whose quota may be the sampled one. `whole`: the replica
    sees all of its accelerators; else the samples are of others' as well.
    """
    if node is None:
        return Load()
    clock = "accelerator_clock_mhz"
    return Load(
        mean_while_working(node, clock, working) if whole else None,
        lowest_while_working(node, clock, working) if whole else None,
        mean_while_working(node, "cpu_percent", working),
        _held(node, working) if alone else None,
        _slowed(node, working) if whole else 0,
    )


def _held(node: NodeSeries, working: WorkIntervals) -> float | None:
    """None if no quota is set. The counter is that of the group of the agent and its ranks."""
    seconds = float((working[1] - working[0]).sum()) / 1000
    if QUOTA not in node.recorded or seconds <= 0:
        return None
    own = [sign.values[inside(sign.times_ms, working)].sum() for sign in node.signs if sign.kind == QUOTA]
    return float(sum(own)) / seconds


def _slowed(node: NodeSeries, working: WorkIntervals) -> int:
    own = [sign.values[inside(sign.times_ms, working)] for sign in node.signs if sign.kind == "slowed"]
    return reduce(or_, (int(value) for values in own for value in values), 0)


def _of_quota(loads: Mapping[int, Load], own: ReplicaPart, others: Sequence[ReplicaPart]) -> Cause | None:
    """A CPU quota, which slows the input of images and the training alike; None without."""
    held = loads.get(own.replica, Load()).held
    usual = median([loads[part.replica].held or 0.0 for part in others if part.replica in loads] or [0.0])
    if held is None or held < usual + HELD:
        return None
    found = f"a CPU quota held its threads up for {held:.2f} s of each second of work"
    return Cause("quota", f"{found}, those of the others for {usual:.2f} s")


def _of_confinement(loads: Mapping[int, Load], own: ReplicaPart, others: Sequence[ReplicaPart]) -> Cause | None:
    """Fewer CPUs than the others may use: an affinity, a quota whose time was not sampled."""
    cpus = loads.get(own.replica, Load()).cpus
    known = [found for part in others if part.replica in loads and (found := loads[part.replica].cpus) is not None]
    if cpus is None or not known or cpus > FEWER_CPUS * (usual := median(known)):
        return None
    return Cause("processors", f"it may use {cpus} of the CPUs of its node, the others {usual:g}")


def _of_node(loads: Mapping[int, Load], own: ReplicaPart, others: Sequence[ReplicaPart]) -> Cause | None:
    """A lower clock of its accelerators, or busier CPUs, as telemetry shows them; None without."""
    its = loads.get(own.replica, Load())
    # Others on its node have the same samples.
    elsewhere = [loads[part.replica] for part in others if part.node != own.node and part.replica in loads]
    clocks = [load.clock_mhz for load in elsewhere if load.clock_mhz is not None]
    if its.clock_mhz is not None and clocks and its.clock_mhz < SLOWER_CLOCK * (usual := median(clocks)):
        sample = f", {its.lowest[1]:.0f} MHz at {format_utc(int(its.lowest[0]))}" if its.lowest is not None else ""
        found = f"its accelerators ran at {its.clock_mhz:.0f} MHz{sample}, those of the others at {usual:.0f} MHz"
        reasons = [word for bit, word in SLOWED.items() if its.slowed & bit]
        return Cause("clocks", found + (f", slowed down by {', '.join(reasons)}" if reasons else ""))
    cpus = [load.cpu_percent for load in elsewhere if load.cpu_percent is not None]
    if its.cpu_percent is not None and cpus and its.cpu_percent > (busy := median(cpus)) + BUSIER_PERCENT:
        found = f"the CPUs of its node were {its.cpu_percent:.0f} % in use, those of the others {busy:.0f} %"
        return Cause("processors", f"{found}: look for other programs there")
    return None
