"""Memory that is short: which processes die first, and whether the kernel has killed any."""

from __future__ import annotations

import contextlib
from pathlib import Path

RANKS_FIRST = 500
"""Out of memory, ranks go before the agent and the primary: the run survives a rank."""

CGROUPS = Path("/sys/fs/cgroup")


def die_first(process: int) -> None:
    """Have the kernel choose this process, and those it starts, before others."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{process}/oom_score_adj").write_text(f"{RANKS_FIRST}\n", encoding="ascii")


def kills(process: str = "self", cgroups: Path = CGROUPS) -> int | None:
    """Processes that the kernel has killed for want of memory in the limits of a process so far.

    None if it does not say. Without limits it is the whole node's.
    """
    for path in (*_events(process, cgroups), Path("/proc/vmstat")):
        with contextlib.suppress(OSError):
            for line in path.read_text(encoding="ascii").splitlines():
                name, _, number = line.partition(" ")
                if name == "oom_kill" and number.isdecimal():
                    return int(number)
    return None


def _events(process: str, cgroups: Path) -> list[Path]:
    """The counters of the control group of a process, of version 2 and 1."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process}/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, folder = line.split(":", 2)
            if not controllers:
                return [cgroups / folder.lstrip("/") / "memory.events"]
            if "memory" in controllers.split(","):
                return [cgroups / "memory" / folder.lstrip("/") / "memory.oom_control"]
    return []
