"""Other machines, as files below a folder that stands for / in `aiperf.host`.

`imitate` puts one before this process; `environment_of` before the Python processes that a test
starts, by a module of Python's own start (`sitecustomize`) in a folder on their PYTHONPATH. The
program has no way to be told that it is on another machine: these reach into it from outside.
`refuse` lets the storage of this process refuse for a moment.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from aiperf import host

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

AVX2 = "fpu sse sse2 ssse3 fma sse4_1 sse4_2 avx avx2"
AVX512 = f"{AVX2} avx512f avx512dq avx512bw avx512vl avx512_bf16"


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine as its kernel describes it."""

    cpus: int = 2
    affinity: str = ""
    """As in Cpus_allowed_list; all CPUs if it is empty."""
    sockets: int = 1
    cache: int = 32 * MIB
    """Of each last-level cache, one a socket; 0: the kernel does not say."""
    levels: int = 3
    """Levels of caches that the kernel shows."""
    memory: int = 24 * GIB
    available: int = 20 * GIB
    flags: str = AVX512
    arm: bool = False
    host: str = "node7"
    groups: str = "0::/\n"
    """/proc/self/cgroup."""
    limits: Mapping[str, str] = field(default_factory=dict)
    """Files below /sys/fs/cgroup."""
    cards: tuple[str, ...] = ()
    """The CPUs at each card, as in local_cpulist; cards have the PCI addresses `card_address`."""

    def write(self, root: Path) -> Path:
        """Make the files, and give the folder back."""
        files = {
            "proc/cpuinfo": "\n".join(map(self._cpu, range(self.cpus))),
            "proc/meminfo": f"MemTotal: {self.memory // KIB} kB\nMemFree: {self.available // KIB // 2} kB\n"
            f"MemAvailable: {self.available // KIB} kB\n",
            "proc/self/status": f"Name:\tpython\nCpus_allowed_list:\t{self.affinity or f'0-{self.cpus - 1}'}\n",
            "proc/self/cgroup": self.groups,
            "proc/loadavg": "0.25 0.5 0.75 1/100 4242\n",
            "proc/sys/kernel/hostname": f"{self.host}\n",
            "proc/sys/kernel/arch": "aarch64\n" if self.arm else "x86_64\n",
            "sys/devices/system/cpu/online": f"0-{self.cpus - 1}\n" if self.cpus > 1 else "0\n",
            **{f"sys/fs/cgroup/{name}": f"{text}\n" for name, text in self.limits.items()},
            **{
                f"sys/bus/pci/devices/{card_address(number)}/local_cpulist": f"{cpus}\n"
                for number, cpus in enumerate(self.cards)
            },
        }
        for cpu in range(self.cpus if self.cache else 0):
            socket = cpu * self.sockets // self.cpus
            shared = [other for other in range(self.cpus) if other * self.sockets // self.cpus == socket]
            for index, (level, kind, size, by) in enumerate(
                (
                    (1, "Data", 48 * KIB, f"{cpu}"),
                    (1, "Instruction", 32 * KIB, f"{cpu}"),
                    (2, "Unified", 2 * MIB, f"{cpu}"),
                    (3, "Unified", self.cache, f"{shared[0]}-{shared[-1]}"),
                )
            ):
                if level > self.levels:
                    continue
                folder = f"sys/devices/system/cpu/cpu{cpu}/cache/index{index}"
                files |= {
                    f"{folder}/level": f"{level}\n",
                    f"{folder}/type": f"{kind}\n",
                    f"{folder}/size": f"{size // KIB}K\n",
                    f"{folder}/shared_cpu_list": f"{by}\n",
                }
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        return root

    def _cpu(self, number: int) -> str:
        if self.arm:
            return (
                f"processor\t: {number}\nBogoMIPS\t: 243.75\nFeatures\t: fp asimd evtstrm aes sve bf16\n"
                "CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x1\nCPU part\t: 0xd40\n"
            )
        return (
            f"processor\t: {number}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 207\n"
            f"model name\t: Intel(R) Xeon(R) Platinum\ncpu MHz\t\t: 2100.000\nflags\t\t: {self.flags}\n"
        )


MACHINES = {
    "1 core": Machine(cpus=1, memory=4 * GIB, available=3 * GIB),
    "64 cores and 2 TiB": Machine(cpus=64, sockets=2, memory=2048 * GIB, available=2000 * GIB),
    "300 MiB of cache": Machine(cache=300 * MIB, memory=24 * GIB, available=22 * GIB),
    "1.1 GiB of cache": Machine(cpus=96, cache=1152 * MIB, memory=384 * GIB, available=370 * GIB),
    "4 GiB of cache": Machine(cpus=128, sockets=4, cache=1 * GIB, memory=64 * GIB, available=60 * GIB),
    "4 GiB of cache, 2 GiB free": Machine(cpus=128, sockets=4, cache=1 * GIB, memory=64 * GIB, available=2 * GIB),
    "no AVX-512": Machine(flags=AVX2),
    "no AVX2": Machine(flags="fpu sse sse2 ssse3 sse4_1"),
    "2 GiB free": Machine(available=2 * GIB),
    "ARM": Machine(cpus=64, arm=True, cache=0, memory=256 * GIB, available=250 * GIB),
    "two levels of cache": Machine(cpus=16, levels=2, memory=64 * GIB, available=60 * GIB),
    "capitals": Machine(host="Node-A7.Cluster.Example"),
    "odd processors": Machine(cpus=300, sockets=2, affinity=",".join(map(str, range(1, 300, 2))), memory=512 * GIB,
                              available=500 * GIB),
    "could have 128 processors": Machine(cpus=4, affinity="0-127"),
    "one socket of two": Machine(cpus=64, sockets=2, affinity="32-63", memory=512 * GIB, available=500 * GIB),
    "control groups 2": Machine(
        cpus=8, memory=64 * GIB, available=60 * GIB, groups="0::/pod/app\n",
        limits={"cpu.stat": "", "pod/cpu.max": "250000 100000", "pod/memory.max": f"{3 * GIB}",
                "pod/memory.current": f"{1 * GIB}", "pod/memory.stat": f"anon 5\ninactive_file {GIB // 2}",
                "pod/app/cpu.max": "max 100000", "pod/app/memory.max": "max", "pod/app/memory.current": f"{1 * GIB}"},
    ),
    "control groups 1": Machine(
        # As in a container without a namespace of groups, whose own group is not the one named.
        cpus=8, memory=64 * GIB, available=60 * GIB,
        groups="5:memory:/docker/4f1e\n4:cpu,cpuacct:/docker/4f1e\n1:name=systemd:/docker/4f1e\n0::/docker/4f1e\n",
        limits={"cpu,cpuacct/cpu.cfs_quota_us": "50000", "cpu,cpuacct/cpu.cfs_period_us": "100000",
                "memory/memory.limit_in_bytes": f"{3 * GIB}", "memory/memory.usage_in_bytes": f"{1 * GIB}",
                "memory/memory.stat": f"inactive_file 0\ntotal_inactive_file {GIB // 2}",
                "unified/cgroup.procs": ""},
    ),
    "control groups without limits": Machine(
        groups="4:memory:/\n3:cpu:/\n0::/\n",
        limits={"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000",
                "memory/memory.limit_in_bytes": "9223372036854771712", "memory/memory.usage_in_bytes": "4096"},
    ),
}  # fmt: skip
"""Machines by what is particular about them."""


def card_address(number: int) -> str:
    """The PCI address of a card of an imitated machine, as Linux names it."""
    return f"0000:{number:02x}:00.0"


def imitate(machine: Machine, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process find itself on another machine until the end of the test."""
    monkeypatch.setattr("aiperf.host.ROOT", machine.write(folder))


START = """\
import sys
from pathlib import Path
from typing import Any

sys.path.append({sources!r})
from aiperf import host

host.ROOT = Path({root!r})
"""


def environment_of(machine: Machine, folder: Path) -> dict[str, str]:
    """The environment whose Python processes find themselves on another machine."""
    return _environment(machine.write(folder / "root"), folder)


SMALL_CACHE = 2 * MIB


def environment_with_small_caches(folder: Path) -> dict[str, str]:
    """The environment whose Python processes find this machine with a small last-level cache.

    The micro suite streams through twelve times the caches: through 3.5 GiB on a server.
    """
    root, cpus = folder / "root", Path("devices/system/cpu")
    _link_all_but(cpus, host.ROOT / "sys", root / "sys")
    (root / "proc").symlink_to(host.ROOT / "proc")
    for cpu in host.this_host().affinity():
        (root / "sys" / cpus / f"cpu{cpu}").unlink(missing_ok=True)
        cache = root / "sys" / cpus / f"cpu{cpu}/cache/index3"
        cache.mkdir(parents=True)
        for name, text in (("level", "3"), ("type", "Unified"), ("size", f"{SMALL_CACHE // KIB}K")):
            (cache / name).write_text(f"{text}\n")
        (cache / "shared_cpu_list").write_text("all\n")
    return _environment(root, folder)


def _link_all_but(path: Path, original: Path, copy: Path) -> None:
    """Link the entries of a folder from its copy; make and fill the folders of the path."""
    copy.mkdir(parents=True)
    for entry in original.iterdir():
        if path.parts[:1] == (entry.name,):
            _link_all_but(Path(*path.parts[1:]), entry, copy / entry.name)
        else:
            (copy / entry.name).symlink_to(entry)


def _environment(root: Path, folder: Path) -> dict[str, str]:
    """The environment whose Python processes take a folder for /."""
    sources = str(Path(__file__).resolve().parents[2])
    start = folder / "start"
    start.mkdir(parents=True)
    (start / "sitecustomize.py").write_text(START.format(sources=sources, root=str(root)))
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(start), os.environ.get("PYTHONPATH", ""))))}


def refuse(monkeypatch: pytest.MonkeyPatch, *codes: int) -> None:
    """Let the next openings of files fail with these errors, one each."""
    real, left = Path.open, iter(codes)

    def opened(file: Path, *words: Any, **more: Any) -> Any:
        for code in left:
            raise OSError(code, os.strerror(code))
        return real(file, *words, **more)

    monkeypatch.setattr(Path, "open", opened)
