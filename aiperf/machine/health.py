"""Sources of a node's health: what its kernel and its drivers count of errors and of slowing down.

A source is a function without arguments that gives fields of a sample of telemetry: counters since
the node or its driver started, which only grow. It is empty on a node without the thing, and leaves
out what it cannot read. Add a source to `sources`, and its fields to `aiperf.machine.health_kinds`.
"""

import contextlib
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml

from aiperf.host import this_host
from aiperf.machine.vendors import Fields
from aiperf.machine.vendors.contract import MOST_CARDS, asked, number, text


def sources() -> tuple[Callable[[], Fields], ...]:
    """All sources of a sampling process; each may fail by itself."""
    return sample_infiniband, sample_processors, sample_nfs, Xids()


__all__ = ["sample_infiniband", "sample_nfs", "sample_processors", "sources"]


WORD_BYTES = 4
"""Ports count data in words of 32 bits."""

TRAFFIC = {"port_rcv_data": "infiniband_received_bytes", "port_xmit_data": "infiniband_sent_bytes"}

DOWN = "link_downed"

ERRORS = (
    "symbol_error",
    "link_error_recovery",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_xmit_discards",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "VL15_dropped",
)
"""Counters of what a healthy fabric does not have, or hardly."""


def sample_infiniband() -> Fields:
    """Bytes, errors and losses of links over all ports; empty without a port."""
    totals: Counter[str] = Counter()
    for port in sorted(this_host().root.glob("sys/class/infiniband/*/ports/*")):
        counters = {file.name: value for file in port.glob("counters/*") if (value := _number(file)) is not None}
        for name, field in TRAFFIC.items():
            if name in counters:
                totals[field] += WORD_BYTES * counters[name]
        if DOWN in counters:
            totals["infiniband_link_downs"] += counters[DOWN]
        known = [counters[name] for name in ERRORS if name in counters]
        if known:
            totals["infiniband_errors"] += sum(known)
    return dict(totals)


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


MOUNT = re.compile(r"device .* with fstype (\S+)")

OPERATION = re.compile(r"\s+\w+: (\d+) (\d+) (\d+) \d+ \d+ \d+ \d+ \d+")
"""An operation's requests, transmissions and major timeouts; then bytes and milliseconds."""


def sample_nfs() -> Fields:
    """Retransmissions and major timeouts of all NFS mounts; empty without a mount."""
    try:
        lines = (this_host().root / "proc/self/mountstats").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    again = timeouts = 0
    mounts, here = 0, False
    for line in lines:
        if mount := MOUNT.match(line):
            here = mount[1] in ("nfs", "nfs4")
            mounts += here
        elif here and (operation := OPERATION.match(line)):
            requests, transmissions, major = map(int, operation.groups())
            again += max(0, transmissions - requests)
            timeouts += major
    return {"nfs_retransmissions": again, "nfs_timeouts": timeouts} if mounts else {}


SECONDS = {"throttled_usec": 1e-6, "throttled_time": 1e-9}


def sample_processors() -> Fields:
    """Times at which CPUs were slowed down by heat, and seconds that threads waited for a quota."""
    found: Fields = {}
    if (events := this_host().heat_events()) is not None:
        found["cpu_throttle_events"] = events
    if this_host().cpu_quota() is not None:
        found["cpu_quota_held_s"] = held_by_quota_s()
    return found


def held_by_quota_s() -> float:
    """Seconds that the threads of this process's control groups have been held up by quotas.

    `throttled_usec` of version 2, `throttled_time` in ns of version 1 (Linux, cgroup-v2.rst and
    sched-bwc.rst).
    """
    total = 0.0
    for folder in this_host().control_groups("cpu"):
        with contextlib.suppress(OSError, ValueError):
            for line in (folder / "cpu.stat").read_text(encoding="ascii").splitlines():
                name, _, number = line.partition(" ")
                if name in SECONDS:
                    total += SECONDS[name] * float(number)
    return total


MOST_EVENTS = 100
"""Events of one sample. A GPU in a bad way may report without end."""


class Xids:
    """XIDs since the last sample.

    NVML stays open from the first sample to the end of the process: an event set hears only of what
    happens after it was made.
    """

    def __init__(self) -> None:
        self._set: Any = None
        self._known = False

    def __call__(self) -> Fields:
        """A list of the number and the GPU's UUID of each event; empty without any.

        `xids_heard` says on a node with GPUs that events would be there.
        """
        if not self._known:
            self._known, self._set = True, asked(self._listen)
        if self._set is None:
            return {}
        found: list[Fields] = []
        while len(found) < MOST_EVENTS and (event := asked(pynvml.nvmlEventSetWait_v2, self._set, 0)) is not None:
            code = number(event.eventData)
            if event.eventType == pynvml.nvmlEventTypeXidCriticalError and code is not None:
                found.append({"xid": int(code), "uuid": text(asked(pynvml.nvmlDeviceGetUUID, event.device))})
        return {"xids_heard": 1} | ({"xids": found} if found else {})

    @staticmethod
    def _listen() -> Any:
        """An event set of all GPUs that have such events. Raises an error of NVML without any."""
        pynvml.nvmlInit()
        events = pynvml.nvmlEventSetCreate()
        count = int(number(pynvml.nvmlDeviceGetCount(), MOST_CARDS) or 0)
        kind = pynvml.nvmlEventTypeXidCriticalError
        heard = 0
        for index in range(count):
            handle = asked(pynvml.nvmlDeviceGetHandleByIndex, index)
            if handle is not None and asked(_register, handle, kind, events):
                heard += 1
        return events if heard else None


def _register(handle: Any, kind: int, events: Any) -> bool:
    pynvml.nvmlDeviceRegisterEvents(handle, kind, events)
    return True
