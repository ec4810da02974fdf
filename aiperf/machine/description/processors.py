"""Sockets, cores, clock, caches and memory of a node."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path

from aiperf.answers import ask_and_wait
from aiperf.host import this_host

DMIDECODE_S = 5.0
"""Longest wait for dmidecode, which reads a table of a few KiB."""

_MODULE = re.compile(r"^Memory Device$(.*?)(?=^\S|\Z)", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r"^\s+([^:\n]+): (.+)$", re.MULTILINE)


def describe_processors() -> dict[str, str | int | float | None]:
    """Facts of processors and memory, for the whole node, and the CPUs that the agent may use."""
    host = this_host()
    cores = host.cores()
    found: dict[str, str | int | float | None] = {
        "cpu_sockets": len({socket for socket, _ in cores}) or None,
        "cpu_cores": len(cores) or None,
        "cpu_max_mhz": host.highest_clock_mhz(),
        "cpu_caches": ", ".join(host.caches_of_a_core()) or None,
        "numa_nodes": host.memory_domains() or None,
        "cpu_affinity": _ranges(sorted(host.affinity())),
        "memory_modules": _memory(host.root),
    }
    return {name: value for name, value in found.items() if value is not None}


def _memory(root: Path) -> str | None:
    """The modules of memory by kind, such as 16 x 64 GB DDR5 4800 MT/s; only root may read them."""
    if os.geteuid() != 0 or not (root / "sys/firmware/dmi/tables/DMI").exists():
        return None
    answer = ask_and_wait(("dmidecode", "--type", "memory"), DMIDECODE_S)
    return modules_of(answer.output) if answer.code == 0 else None


def modules_of(text: str) -> str | None:
    """The modules in the words of dmidecode, each kind with its number; None without any."""
    kinds: Counter[str] = Counter()
    for part in _MODULE.findall(text):
        fields: dict[str, str] = dict(_FIELD.findall(part))
        size, kind = fields.get("Size", ""), fields.get("Type", "Unknown")
        speed = fields.get("Configured Memory Speed", fields.get("Speed", "Unknown"))
        if re.match(r"\d", size):
            kinds[" ".join([size, *(each for each in (kind, speed) if not each.startswith("Unknown"))])] += 1
    return ", ".join(f"{number} x {kind}" for kind, number in kinds.most_common()) or None


def _ranges(numbers: list[int]) -> str:
    """Numbers as the kernel writes them: 0-3,8."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in parts)
