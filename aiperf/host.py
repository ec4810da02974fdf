"""The machine that this process runs on: CPUs, caches, memory, limits, names.

The only place that asks the kernel for them. Each is read anew, since affinities and limits change,
and never fails: what the kernel does not say is 0, empty or as if there were no limit.
"""

import contextlib
import os
import platform
import shutil
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/")
"""Folder of /proc and /sys. Tests put those of other machines here; no setting, option or variable
of the environment does, so that no run describes another machine by accident or in secret.
"""

CPUS = "sys/devices/system/cpu"

CAP_SYS_ADMIN, CAP_PERFMON = 21, 38
"""The bits of these capabilities (linux/capability.h)."""

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_LETTERS = {"Data": "d", "Instruction": "i"}
_ARM = ("CPU implementer", "CPU part")


@dataclass(frozen=True, slots=True)
class Memory:
    """Main memory in bytes."""

    total: int
    """Bytes of the machine."""
    limit: int
    """Bytes of the machine, or the least of the control groups of this process if that is less."""
    available: int
    """Bytes that are free without swapping, within the limits of all control groups."""


@dataclass(frozen=True, slots=True)
class Host:
    """A machine by the files below `root`."""

    root: Path = ROOT

    def name(self) -> str:
        """The host name, in the letters that the kernel has."""
        return self._text("proc/sys/kernel/hostname") or socket.gethostname()

    def system(self) -> str:
        """The operating system and its version, such as Linux-6.1.0-x86_64-with-glibc2.36."""
        return platform.platform()

    def online_cpus(self) -> int:
        """CPUs of the machine, whatever this process may use of them."""
        return len(self._online()) or len(self.cpu_fields("processor")) or os.cpu_count() or 1

    def affinity(self) -> frozenset[int]:
        """Numbers of the CPUs on which this process may run: any, with gaps, from 0 or not."""
        for line in self._text("proc/self/status").splitlines():
            name, _, value = line.partition(":")
            if name == "Cpus_allowed_list":
                # The mask may have CPUs that could be plugged in, or that are switched off.
                allowed = _numbers(value)
                return allowed & self._online() or allowed
        return frozenset(range(self.online_cpus()))

    def _online(self) -> frozenset[int]:
        return _numbers(self._text("sys/devices/system/cpu/online"))

    def may(self, *capabilities: int) -> bool:
        """True if this process has one of the capabilities (capabilities(7)).

        Root lacks CAP_SYS_ADMIN in most containers.
        """
        for line in self._text("proc/self/status").splitlines():
            name, _, value = line.partition(":")
            if name == "CapEff":
                with contextlib.suppress(ValueError):
                    return any(int(value, 16) >> each & 1 for each in capabilities)
        return os.geteuid() == 0

    def cpu_quota(self) -> float | None:
        """CPUs' worth of time that control groups allow this process, such as 1.5; None: any."""
        found = []
        for folder in self.control_groups("cpu"):
            words = text_in(folder / "cpu.max").split()
            # Version 2 has both numbers in one file, version 1 each in its own.
            words = words or [text_in(folder / "cpu.cfs_quota_us"), text_in(folder / "cpu.cfs_period_us")]
            with contextlib.suppress(ValueError):  # "max": no limit
                quota, period = map(int, words)
                if quota > 0 and period > 0:
                    found.append(quota / period)
        return min(found, default=None)

    def usable_cpus(self) -> int:
        """CPUs that this process can keep busy: the less of affinity and quota, at least 1.

        Of a quota the whole part: with a thread more, all threads stop together in each period.
        """
        quota = self.cpu_quota()
        own = len(self.affinity()) or 1
        return own if quota is None else max(1, min(own, int(quota)))

    def cpu_fields(self, name: str) -> list[str]:
        """A field of every CPU in /proc/cpuinfo; empty if this architecture does not have it."""
        lines = (line.partition(":") for line in self._text("proc/cpuinfo").splitlines())
        return [value.strip() for found, _, value in lines if found.strip() == name]

    def cpu_model(self) -> str:
        """The processor's model; on ARM, whose kernel has no names, numbers of maker and part."""
        for name in ("model name", "cpu"):  # x86, POWER
            if found := self.cpu_fields(name):
                return found[0]
        architecture = self._text("proc/sys/kernel/arch") or platform.machine()
        numbers = [f"{name.removeprefix('CPU ')} {found[0]}" for name in _ARM if (found := self.cpu_fields(name))]
        return f"{architecture} ({', '.join(numbers)})" if numbers else architecture

    def cpu_flags(self) -> frozenset[str]:
        """The features of the CPU as Linux names them on its architecture."""
        found = self.cpu_fields("flags") or self.cpu_fields("Features")
        return frozenset(found[0].split()) if found else frozenset()

    def last_level_cache(self) -> int:
        """Bytes of all last-level caches of the CPUs in the affinity together; 0: not known.

        Processors have several: one for each socket, tile or complex of cores.
        """
        sizes: dict[str, int] = {}
        for cpu in self.affinity():
            last = max(self._caches(cpu), default=None)
            if last is not None:
                level, shared, size = last
                sizes[f"{level} {shared or cpu}"] = size
        return sum(sizes.values())

    def cache_level(self) -> int:
        """The highest level of a cache that the kernel shows; 0: none."""
        return max((level for cpu in self.affinity() for level, _, _ in self._caches(cpu)), default=0)

    def _caches(self, cpu: int) -> Iterator[tuple[int, str, int]]:
        """Level, CPUs that share it, and bytes of each cache of a CPU that holds data."""
        for folder in (self.root / f"sys/devices/system/cpu/cpu{cpu}/cache").glob("index*"):
            level, size = text_in(folder / "level"), text_in(folder / "size")
            if text_in(folder / "type") != "Instruction" and level.isdigit() and size[:-1].isdigit():
                yield int(level), text_in(folder / "shared_cpu_list"), int(size[:-1]) * _UNITS.get(size[-1], 0)

    def memory(self) -> Memory:
        """Main memory, and what control groups allow of it."""
        fields = {}
        for line in self._text("proc/meminfo").splitlines():
            name, _, value = line.partition(":")
            with contextlib.suppress(ValueError, IndexError):
                fields[name] = int(value.split()[0]) * 1024  # "kB" are KiB
        total = fields.get("MemTotal") or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        available = fields.get("MemAvailable", fields.get("MemFree", total))
        limit = total
        for folder in self.control_groups("memory"):
            own = _least(folder / "memory.max", folder / "memory.high", folder / "memory.limit_in_bytes")
            # Version 1 has a number beyond all memory for "no limit".
            if own is not None and own < total:
                limit = min(limit, own)
                available = min(available, max(0, own - _used(folder)))
        return Memory(total, limit, available)

    def control_groups(self, controller: str, process: int | str = "self") -> list[Path]:
        """Folders of the control groups of a process, version 1 or 2: its own, then those around.

        Some may not exist: inside a container the names may be those outside of it.
        """
        mounts, path_of_2 = self.root / "sys/fs/cgroup", None
        for line in self._text(f"proc/{process}/cgroup").splitlines():
            _, names, path = [*line.split(":", 2), "", ""][:3]
            if controller in names.split(","):
                mount = mounts / controller
                return _outwards(mount if mount.is_dir() else mounts / names, path)
            if not names:
                path_of_2 = path
        if path_of_2 is None:
            return []
        # Next to version 1 it is mounted in a folder of its own.
        return _outwards(mounts / "unified" if (mounts / "unified").is_dir() else mounts, path_of_2)

    def load(self) -> float:
        """Mean number of processes that ran, or waited to, in the last minute."""
        try:
            return float(self._text("proc/loadavg").split()[0])
        except (IndexError, ValueError):
            return 0.0

    def heat_events(self) -> int | None:
        """Number of slow-downs of CPUs by heat since the start; None if the kernel does not say.

        The sum of `core_throttle_count` of all CPUs (Linux, x86, thermal_throttle).
        """
        files = self.root.glob("sys/devices/system/cpu/cpu[0-9]*/thermal_throttle/core_throttle_count")
        counts = [int(text) for file in files if (text := text_in(file)).isdecimal()]
        return sum(counts) if counts else None

    def cores(self) -> set[tuple[str, str]]:
        """Socket and core of every CPU, the same for its siblings; empty if they are unknown."""
        found = set()
        for folder in (self.root / CPUS).glob("cpu[0-9]*/topology"):
            socket, die, core = (text_in(folder / name) for name in ("physical_package_id", "die_id", "core_id"))
            if socket and core:
                found.add((socket, f"{die}:{core}"))
        return found

    def memory_domains(self) -> int:
        """Number of memory domains (NUMA nodes); 0: unknown."""
        return len([*self.root.glob("sys/devices/system/node/node[0-9]*")])

    def memory_domains_of(self, cpus: frozenset[int]) -> frozenset[int]:
        """Numbers of the memory domains that these CPUs belong to; empty: unknown."""
        folders = self.root.glob("sys/devices/system/node/node[0-9]*")
        return frozenset(
            int(folder.name.removeprefix("node")) for folder in folders if cpus & _numbers(text_in(folder / "cpulist"))
        )

    def cpus_near(self, address: str) -> frozenset[int]:
        """CPUs of the memory domain of a device, by its PCI address; empty: no such device."""
        return _numbers(self._text(f"sys/bus/pci/devices/{address}/local_cpulist")) if address else frozenset()

    def highest_clock_mhz(self) -> float | None:
        """Highest clock of a CPU; None if the kernel does not say."""
        text = text_in(self.root / CPUS / "cpu0/cpufreq/cpuinfo_max_freq")
        return int(text) / 1000 if text.isdecimal() else None

    def caches_of_a_core(self) -> list[str]:
        """Caches of the first CPU with their sizes, such as L1d 48K."""
        found = []
        for folder in sorted((self.root / CPUS / "cpu0/cache").glob("index*")):
            level, kind, size = (text_in(folder / name) for name in ("level", "type", "size"))
            if level and size:
                found.append(f"L{level}{_LETTERS.get(kind, '')} {size}")
        return found

    def _text(self, path: str) -> str:
        return text_in(self.root / path)


def this_host() -> Host:
    """The machine that this process runs on."""
    return Host(ROOT)


def free_disk(folder: Path) -> int:
    """Bytes that a user may still write on the file system of a folder. Raises OSError."""
    return shutil.disk_usage(folder).free


def disk_size(folder: Path) -> int:
    """Bytes of the file system of a folder. Raises OSError."""
    return shutil.disk_usage(folder).total


def text_in(path: Path) -> str:
    """The text in a file of the kernel; empty if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def mask_of(text: str) -> int:
    """The numbers of a list of the kernel, such as "0-3,8", as the bits of a number.

    Ranges that overlap cost no more than others.
    """
    mask = 0
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit():
            count = int(last if last.isdigit() else first) + 1 - int(first)
            mask |= ((1 << max(0, count)) - 1) << int(first)
    return mask


def _numbers(text: str) -> frozenset[int]:
    mask = mask_of(text)
    return frozenset(number for number in range(mask.bit_length()) if mask >> number & 1)


def ranges(numbers: frozenset[int]) -> str:
    """Numbers as the kernel lists them: 0-3,8."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in parts)


def _outwards(mount: Path, path: str) -> list[Path]:
    # Within a container a path may lead out of what is mounted there (/../..).
    names = [name for name in path.split("/") if name not in ("", "..")]
    return [mount.joinpath(*names[:count]) for count in range(len(names), -1, -1)]


def _least(*files: Path) -> int | None:
    """The least number in files that hold one."""
    return min((int(text) for file in files if (text := text_in(file)).isdigit()), default=None)


def _used(group: Path) -> int:
    """Bytes of a memory group that cannot be had back: all but file pages not used lately."""
    used = _least(group / "memory.current", group / "memory.usage_in_bytes") or 0
    fields = dict(line.split(maxsplit=1) for line in text_in(group / "memory.stat").splitlines() if " " in line)
    unused = fields.get("total_inactive_file", fields.get("inactive_file", "0"))
    return used - int(unused) if unused.isdigit() else used
