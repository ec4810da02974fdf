"""Sockets, cores, clock, caches and memory of a node, by the files of Linux."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from aiperf.answers import ask_and_wait
from aiperf.host import text_in, this_host

CPUS = "sys/devices/system/cpu"

LETTERS = {"Data": "d", "Instruction": "i"}
"""Letters of caches that hold data or instructions alone."""

DMIDECODE_S = 5.0
"""Longest wait for dmidecode, which reads a table of a few KiB."""

_MODULE = re.compile(r"^Memory Device$(.*?)(?=^\S|\Z)", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r"^\s+([^:\n]+): (.+)$", re.MULTILINE)


def describe_processors() -> dict[str, str | int | float | None]:
    """Facts of processors and memory, for the whole node, and the CPUs that the agent may use."""
    host = this_host()
    places = {place for cpu in sorted((host.root / CPUS).glob("cpu[0-9]*")) if (place := _place(cpu)) is not None}
    domains = [*(host.root / "sys/devices/system/node").glob("node[0-9]*")]
    megahertz = _number(host.root / CPUS / "cpu0/cpufreq/cpuinfo_max_freq")
    found: dict[str, str | int | float | None] = {
        "cpu_sockets": len({socket for socket, _ in places}) or None,
        "cpu_cores": len(places) or None,
        "cpu_max_mhz": megahertz / 1000 if megahertz else None,
        "cpu_caches": ", ".join(_caches(host.root / CPUS / "cpu0")) or None,
        "numa_nodes": len(domains) or None,
        "cpu_affinity": _ranges(sorted(host.affinity())),
        "memory_modules": _memory(host.root),
    }
    return {name: value for name, value in found.items() if value is not None}


def _place(cpu: Path) -> tuple[str, str] | None:
    """The socket and the core of a CPU, as numbers that are the same for its siblings."""
    socket, core = text_in(cpu / "topology/physical_package_id"), text_in(cpu / "topology/core_id")
    die = text_in(cpu / "topology/die_id")
    return (socket, f"{die}:{core}") if socket and core else None


def _caches(cpu: Path) -> Iterator[str]:
    """Caches of a CPU with their sizes, such as L1d 48K."""
    for folder in sorted(cpu.glob("cache/index*")):
        level, kind, size = (text_in(folder / name) for name in ("level", "type", "size"))
        if level and size:
            yield f"L{level}{LETTERS.get(kind, '')} {size}"


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


def _number(file: Path) -> int | None:
    text = text_in(file)
    return int(text) if text.isdecimal() else None
