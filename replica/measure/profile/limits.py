"""The memory that a training step may take."""

from __future__ import annotations

import psutil

from aiperf.machine.accelerators import find_accelerators


def memory_limit() -> int:
    """Bytes: of the smallest GPU, else what is available of the machine's now."""
    machine = int(psutil.virtual_memory().available)
    return min((each.memory_bytes for each in find_accelerators()), default=machine)
