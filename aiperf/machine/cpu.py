"""Facts of the CPUs of this machine, from /proc/cpuinfo."""

from __future__ import annotations

from pathlib import Path


def cpu_fields(name: str) -> list[str]:
    """A field of every CPU of this machine as Linux lists them; none if it does not."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    return [line.partition(":")[2].strip() for line in lines if line.startswith(name)]
