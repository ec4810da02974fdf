"""The memory that a training step may take."""

from __future__ import annotations

from aiperf.host import this_host
from aiperf.machine.accelerators import find_accelerators


def memory_limit() -> int:
    """The memory of the smallest GPU, or without any the machine's available memory, in bytes."""
    machine = this_host().memory().available
    return min((each.memory_bytes for each in find_accelerators()), default=machine)
