"""Memory and caches of this machine, as far as they limit the micro suite."""

from __future__ import annotations

from pathlib import Path

import psutil

from aiperf.machine.accelerators import find_accelerators
from aiperf.machine.node import available_cpus, cpu_model
from replica.measure.micro.stacks.contract import TooLargeError
from workloads.micro.suite import group
from workloads.micro.work import Work

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
USUAL_CACHE = 32 << 20
"""Bytes of the last-level cache if the kernel does not say."""

MOST_COPIES = 512

NUMPY_BYTES = 4
"""Of an element on this side of the device."""


def last_level_cache() -> int:
    """Bytes of the largest cache."""
    sizes = [path.read_text(encoding="ascii").strip() for path in CACHES.glob("index*/size")]
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return max((int(size[:-1]) * units[size[-1]] for size in sizes if size[-1:] in units), default=USUAL_CACHE)


def device_of(stack: str) -> tuple[str, int | None]:
    """The model of what a stack computes on, by its own name of it, and the CPUs if it is those."""
    if "cpu" in stack.lower():
        return cpu_model(), available_cpus()
    found = find_accelerators()
    return (found[0].name if found else stack), None


def copies_of(work: Work, item_size: int) -> int:
    """Copies of the operands to rotate over.

    Pooling and fully connected layers get twice the last-level cache, up to `MOST_COPIES`, so that
    no operand is in the cache because it was just used; a triad exceeds it by itself, as one copy
    of a large layer does. Raises TooLargeError if one copy needs more than a quarter of the
    available memory.
    """
    limit = psutil.virtual_memory().available // 4
    needed = work.elements * NUMPY_BYTES
    if needed > limit:
        raise TooLargeError(
            f"{work.case.operator} {work.case.text}, batch {work.batch}, needs {needed / 2**30:.1f} GiB, more than a "
            f"quarter of the available memory ({limit / 2**30:.1f} GiB)"
        )
    if group(work.case) not in ("pool", "fc"):
        return 1
    if work.bytes(item_size) > 2 * last_level_cache():
        return 1
    wanted = -(-2 * last_level_cache() // work.bytes(item_size)) + 1
    return int(min(max(wanted, 2), MOST_COPIES, max(limit // needed, 1)))
