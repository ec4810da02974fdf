"""Health of the nodes during the run: signs in their samples, and what was not recorded."""

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import reduce
from operator import or_

import numpy as np

from aiperf.cli.units import count
from aiperf.clock import format_utc
from aiperf.config.duration import format_duration
from aiperf.machine.health_kinds import KINDS, SLOWED
from analysis.reading.health import Sign
from analysis.reading.integrity.view import replica_of
from analysis.reading.telemetry import NodeSeries
from analysis.report.estimates import HealthPart, SignPart
from analysis.report.physics import DevicesAtWork
from analysis.report.sampling import WorkIntervals, inside

GRAVE = frozenset({"ecc_uncorrected", "remap_failure", "xid", "infiniband_link_downs", "nvlink_recoveries"})
"""Kinds that no healthy node has."""

SLOWING = frozenset({"slowed", "pcie_width"})
"""Kinds that are grave while work is counted; without work, they save power."""

XIDS = ("xid", "xid_of_program")
"""Errors that NVIDIA's driver reported: of the device or the driver, and those of programs."""

WORDS: Mapping[str, str] = {
    "slowed": "slowed down",
    "remap_failure": "could not replace a row of its memory",
    "pcie_width": "PCIe had fewer lanes than it can",
    "xid": "the driver reported XID",
    "xid_of_program": "a program failed or was killed on it: the driver reported XID",
    "ecc_corrected": "corrected errors of memory",
    "ecc_uncorrected": "uncorrected errors of memory",
    "remapped_corrected": "rows of memory replaced after corrected errors",
    "remapped_uncorrected": "rows of memory replaced after uncorrected errors",
    "pcie_replays": "packets of PCIe that were sent again",
    "nvlink_crc_errors": "NVLink: packets with a wrong checksum",
    "nvlink_replays": "NVLink: packets that were sent again",
    "nvlink_recoveries": "NVLink: links that had to recover",
    "infiniband_errors": "InfiniBand: errors and discarded packets",
    "infiniband_link_downs": "InfiniBand: links that went down",
    "cpu_throttle_events": "CPUs that were slowed down by heat",
    "cpu_quota_held_s": "seconds for which a CPU quota held threads up",
    "nfs_retransmissions": "NFS requests that were sent again",
    "nfs_timeouts": "NFS requests without an answer in time",
}
"""Kinds of signs in words; behind the words of a counter stands its growth."""


def health_part(run: DevicesAtWork) -> HealthPart:
    """The signs within the run, the grave ones first, then by node."""
    data = run.data
    # A run that was never released has no time that its samples could be of.
    nodes = data.telemetry.nodes if data.start_ms is not None else ()
    recorded = Counter(kind for node in nodes for kind in node.recorded)
    signs: list[SignPart] = []
    if data.start_ms is not None:
        working = _working(run)
        for node in nodes:
            signs += _signs(node, working.get(node.host, []), (data.start_ms, data.end_ms))
    return HealthPart(
        nodes=len(nodes),
        recorded={kind: recorded[kind] for kind in KINDS if recorded[kind]},
        not_recorded=tuple(kind for kind in KINDS if not recorded[kind]),
        signs=tuple(
            sorted(signs, key=lambda sign: (not sign.grave, sign.node, sign.device or "", sign.kind, sign.replica or 0))
        ),
    )


def health_notices(part: HealthPart) -> tuple[str, ...]:
    """A line for each grave sign."""
    return tuple(f"health of {sign.node}: {sign.text}" for sign in part.signs if sign.grave)


def _working(run: DevicesAtWork) -> dict[str, list[WorkIntervals]]:
    """The working times of the replicas that sampled each node, or whose last one it is."""
    found = {node.host: {replica_of(writer) for writer in node.writers} for node in run.data.telemetry.nodes}
    for replica, machine in run.machines.items():
        found.setdefault(machine.host or "", set()).add(replica)
    return {host: [run.busy[own] for own in run.busy if own in replicas] for host, replicas in found.items()}


def _signs(node: NodeSeries, working: list[WorkIntervals], run: tuple[int, int]) -> Iterator[SignPart]:
    start_ms, end_ms = run
    for sign in node.signs:
        within = (sign.times_ms >= start_ms) & (sign.times_ms <= end_ms)
        if not within.any():
            continue
        own = sign.only(within)
        times, values = own.times_ms, own.values
        busy = reduce(or_, (inside(times, each) for each in working), np.zeros(len(times), bool))
        grave = sign.kind in GRAVE or (sign.kind in SLOWING and bool(busy.any()))
        yield SignPart(
            node=node.host,
            device=sign.device or None,
            replica=sign.replica,
            kind=sign.kind,
            samples=len(times),
            working=int(busy.sum()),
            amount=_amount(sign.kind, values),
            first_t_s=(float(times[0]) - start_ms) / 1000,
            grave=grave,
            text=_text(own, int(busy.sum()), start_ms),
        )


def _amount(kind: str, values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float | None:
    """The growth of a counter, or the least width; None for what has no amount."""
    if kind == "pcie_width":
        return float(values.min())
    return None if kind in ("slowed", "remap_failure", *XIDS) else float(values.sum())


def _text(sign: Sign, working: int, start_ms: int) -> str:
    """A sign in words: the device, what it was, how often and when it was first seen."""
    who = f"accelerator {sign.device}: " if sign.device else ""
    who = who if sign.replica is None else f"replica {sign.replica}: "
    first_ms = int(sign.times_ms[0])
    after = format_duration((first_ms - start_ms) / 1000)
    seen = f"first {after} after the start of the run, at {format_utc(first_ms)}"
    if sign.kind in ("slowed", "pcie_width"):
        during = f"in {count(len(sign.times_ms), 'sample')}, {working} of them of counted work"
        if sign.kind == "pcie_width":
            return f"{who}{WORDS[sign.kind]} ({sign.values.min():.0f}) {during}; {seen}"
        reasons = [word for bit, word in SLOWED.items() if (sign.values.astype(np.int64) & bit).any()]
        return f"{who}{WORDS[sign.kind]} by {', '.join(reasons)} {during}; {seen}"
    if sign.kind in XIDS:
        codes = ", ".join(f"{code:.0f}" for code in np.unique(sign.values))
        return f"{who}{WORDS[sign.kind]} {codes}; {seen}"
    if sign.kind == "remap_failure":
        return f"{who}{WORDS[sign.kind]}; {seen}"
    return f"{who}{WORDS[sign.kind]}: {sign.values.sum():,.6g}; {seen}"
