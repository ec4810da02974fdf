"""Facts of a node's hardware and software beyond names, for readers who were not there."""

import contextlib
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path

from aiperf.answers import ask_and_wait
from aiperf.host import disk_size, ranges, text_in, this_host
from aiperf.machine.vendors import vendor_of_node
from aiperf.untrusted.text import cut

Facts = dict[str, str | int | float | None]


def describe_parts(folders: Mapping[str, Path]) -> Facts:
    """All parts of a node, each fact by itself: one that cannot be found out is left out.

    `folders`: folders by their role, whose file systems are described.
    """
    return {
        **describe_processors(),
        **describe_devices(),
        **describe_fabric(),
        **describe_storage(folders),
        **describe_programs(),
    }


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
        "cpu_affinity": ranges(host.affinity()),
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


ACCELERATORS = re.compile(r"0x(0302|0380|1200)")
"""PCI classes of accelerators: 3D controllers, other display controllers, processing accelerators
(PCI Code and ID Assignment, 1.11). Cards with a screen (0x0300) are not among them.
"""

GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
"""PCIe generations by gigatransfers per second and lane (PCI-SIG, base specifications)."""


def describe_devices() -> dict[str, str | int | float | None]:
    """Clocks and links of accelerators, by their driver and by the kernel, and memory domains."""
    links: Counter[str] = Counter()
    domains: dict[str, int] = {}
    for device in sorted(this_host().root.glob("sys/bus/pci/devices/*")):
        if not ACCELERATORS.match(text_in(device / "class")):
            continue
        most = _link(device, "max")
        links[most if _link(device, "current") in ("", most) else f"{most}, now {_link(device, 'current')}"] += 1
        domain = text_in(device / "numa_node")
        if domain.isdecimal():
            domains[domain] = domains.get(domain, 0) + 1
    found = {
        "accelerator_pcie": "; ".join(f"{number} x {link}" for link, number in links.most_common() if link),
        "accelerator_numa": ", ".join(f"{number} at node {domain}" for domain, number in sorted(domains.items())),
    }
    vendor = vendor_of_node()
    by_driver = vendor.describe() if vendor is not None else {}
    return {**by_driver, **{name: text for name, text in found.items() if text}}


def _link(device: Path, which: str) -> str:
    """A link, such as PCIe 5 x16; the current one is slower while the device rests."""
    speed = re.match(r"[\d.]+", text_in(device / f"{which}_link_speed"))
    width = text_in(device / f"{which}_link_width")
    if speed is None or not width.isdecimal():
        return ""
    rate = float(speed[0])
    return f"PCIe {GENERATIONS.get(rate, f'{rate:g} GT/s')} x{width}"


def describe_fabric() -> dict[str, str | int | float | None]:
    """Interfaces that are up, and ports that are active, each kind with its number."""
    root = this_host().root
    found = {"network": _counted(_interfaces(root)), "infiniband": _counted(_ports(root))}
    return {name: text for name, text in found.items() if text}


def _interfaces(root: Path) -> Iterator[str]:
    """Speed and driver of each interface with a device: no bridges, tunnels, or loopback.

    `speed` is in Mbit/s (Documentation/ABI/testing/sysfs-class-net), -1 if it is not known.
    """
    for interface in sorted(root.glob("sys/class/net/*")):
        if not (interface / "device").exists() or text_in(interface / "operstate") == "down":
            continue
        speed = text_in(interface / "speed")
        driver = (interface / "device/driver").resolve().name if (interface / "device/driver").exists() else ""
        rate = f"{int(speed) / 1000:g} Gbit/s" if speed.isdecimal() and int(speed) > 0 else "unknown speed"
        yield " ".join(filter(None, [rate, f"({driver})" if driver else ""]))


def _ports(root: Path) -> Iterator[str]:
    """Rate, link layer and adapter of each active port, as in 400 Gb/sec (4X NDR), mlx5."""
    for port in sorted(root.glob("sys/class/infiniband/*/ports/*")):
        if "ACTIVE" not in text_in(port / "state"):
            continue
        adapter = port.parent.parent
        layer, kind = text_in(port / "link_layer"), text_in(adapter / "hca_type")
        yield ", ".join(filter(None, [text_in(port / "rate") or "unknown rate", layer, kind or adapter.name]))


def _counted(kinds: Iterator[str]) -> str:
    return "; ".join(f"{number} x {kind}" for kind, number in Counter(kinds).most_common())


MOST_NAME = 200


def folders_of(run: Path, data: str | None) -> dict[str, Path]:
    """The folders of a run by their role, for `describe_storage`."""
    return {"run": run, **({"data": Path(data)} if data is not None else {})}


def describe_storage(folders: Mapping[str, Path]) -> dict[str, str | int | float | None]:
    """File system, its source (a server's, as in nfs1:/home) and bytes of each folder by role."""
    mounts = _mounts(this_host().root)
    found: dict[str, str | int | float | None] = {}
    for role, folder in folders.items():
        try:
            place, size = folder.resolve(), disk_size(folder)
        except (OSError, ValueError, RuntimeError):
            continue
        inside = [mount for mount in mounts if place.is_relative_to(mount)]
        if inside:
            kind, source = mounts[max(inside, key=lambda mount: len(mount.parts))]
            found |= {f"{role}_file_system": kind, f"{role}_file_system_source": cut(source, MOST_NAME)}
        found[f"{role}_file_system_bytes"] = size
    return found


def _mounts(root: Path) -> dict[Path, tuple[str, str]]:
    """Type and source by place (proc(5), mountinfo); of several at one place the last counts."""
    try:
        text = (root / "proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return {}
    found = {}
    for line in text.splitlines():
        before, separator, after = line.partition(" - ")
        own, words = before.split(" "), after.split(" ")
        if separator and len(own) > 4 and len(words) > 1:
            found[Path(_plain(own[4]))] = (words[0], _plain(words[1]))
    return found


def _plain(name: str) -> str:
    """A name in which the kernel has written blanks and the like as octal numbers."""
    for code in ("\\040", "\\011", "\\012", "\\134"):
        name = name.replace(code, chr(int(code[1:], 8)))
    return name


WHEELS = {"cuda_runtime": "nvidia-cuda-runtime", "cudnn": "nvidia-cudnn", "nccl": "nvidia-nccl"}
"""Facts, and how the names of the packages with NVIDIA's libraries begin."""

ENDINGS = ("", "-cu11", "-cu12", "-cu13")
"""Ends of their names: the CUDA that they are for."""

ASKED = {"mpi": ("mpirun", "--version"), "slurm": ("scontrol", "--version")}
"""Facts, and the programs that know them; SLURM's is asked inside its jobs alone."""

PATIENCE_S = 5.0
"""Longest wait for a program to say its version."""

MOST_LINE = 100


def describe_programs(environment: Mapping[str, str] = os.environ) -> dict[str, str | int | float | None]:
    """CUDA, cuDNN, NCCL, MPI, SLURM, and the container with its image."""
    asked = [name for name in ASKED if name != "slurm" or "SLURM_JOB_ID" in environment]
    found = {**_wheels(), **{name: _version(*ASKED[name]) for name in asked}, **_container(environment)}
    return {name: text for name, text in found.items() if text}


@cache
def _wheels() -> dict[str, str]:
    """Versions of NVIDIA's libraries as packages, which TensorFlow, JAX and PyTorch load."""
    found = {}
    for fact, name in WHEELS.items():
        for ending in ENDINGS:
            with contextlib.suppress(metadata.PackageNotFoundError):
                found[fact] = metadata.version(f"{name}{ending}")
    return found


@cache
def _version(*words: str) -> str:
    """The first line of what a program says; empty without it."""
    answer = ask_and_wait(words, PATIENCE_S)
    lines = answer.output.splitlines() if answer.code == 0 else []
    return lines[0].strip()[:MOST_LINE] if lines else ""


def _container(environment: Mapping[str, str]) -> dict[str, str]:
    """The container's runtime and image, by what Apptainer, Podman and Docker leave in it."""
    for name in ("APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"):
        if found := environment.get(name):
            return {"container": name.partition("_")[0].lower(), "container_image": found[:MOST_LINE]}
    root = this_host().root
    try:
        text = (root / "run/.containerenv").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {"container": "docker"} if (root / ".dockerenv").exists() else {}
    image = re.search(r'^image="(.*)"$', text, re.MULTILINE)
    return {"container": "podman", **({"container_image": image[1][:MOST_LINE]} if image else {})}
