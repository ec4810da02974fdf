"""CPUs that are slowed down: by their heat, or by the quota of a control group."""

from __future__ import annotations

import contextlib

from aiperf.host import this_host
from aiperf.machine.vendors import Fields

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
