"""GPUs that only Linux's drivers report, by the files of its graphics subsystem.

Intel's (i915, xe), whose tools change with their versions, and AMD's (amdgpu) on a node without
AMD SMI. The files are a documented interface: sysfs-driver-intel-i915-hwmon and
sysfs-driver-intel-xe-hwmon in Documentation/ABI/testing, Documentation/gpu/amdgpu/thermal.rst.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from aiperf.cli.units import MIB
from aiperf.config.sections.base import Precision
from aiperf.machine.vendors import kfd
from aiperf.machine.vendors.contract import (
    LEAST_MEMORY_BYTES,
    Accelerator,
    Fields,
    chosen,
    is_given,
    memory_of,
    number,
    pci_address,
)
from aiperf.machine.vendors.kfd import choice_of_rocm, shown_by_rocm

GIB = 1 << 30

MASK = "ZE_AFFINITY_MASK"

AMD, INTEL = "0x1002", "0x8086"

INTEL_DEVICES: Mapping[str, tuple[str, int]] = {
    "0x0bd5": ("Intel Data Center GPU Max 1550", 128 * GIB),
    "0x0bd6": ("Intel Data Center GPU Max 1550", 128 * GIB),
    "0x0bda": ("Intel Data Center GPU Max 1100", 48 * GIB),
    "0x0bdb": ("Intel Data Center GPU Max 1100", 48 * GIB),
    "0x56c0": ("Intel Data Center GPU Flex 170", 16 * GIB),
    "0x56c1": ("Intel Data Center GPU Flex 140", 6 * GIB),
}
"""Accelerators by PCI id, with their memory (pci-ids.ucw.cz; Intel's product pages).

Others of Intel's are parts of CPUs."""

SCALES: Mapping[str, tuple[str, float]] = {
    "gpu_busy_percent": ("DCGM_FI_DEV_GPU_UTIL", 1),
    "mem_busy_percent": ("DCGM_FI_DEV_MEM_COPY_UTIL", 1),
    "mem_info_vram_used": ("DCGM_FI_DEV_FB_USED", 1 / MIB),
    "mem_info_vram_total": ("DCGM_FI_DEV_FB_TOTAL", 1 / MIB),
    "current_link_width": ("DCGM_FI_DEV_PCIE_LINK_WIDTH", 1),
    "max_link_width": ("DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH", 1),
}
SENSORS: Mapping[str, tuple[str, float]] = {
    "power1_input": ("DCGM_FI_DEV_POWER_USAGE", 1e-6),
    "power1_average": ("DCGM_FI_DEV_POWER_USAGE", 1e-6),
    "energy1_input": ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 1e-3),
    "temp2_input": ("DCGM_FI_DEV_GPU_TEMP", 1e-3),
    "freq1_input": ("DCGM_FI_DEV_SM_CLOCK", 1e-6),
    "freq2_input": ("DCGM_FI_DEV_MEM_CLOCK", 1e-6),
}
"""Files of a card and of its sensors: the field, and what makes DCGM's unit of the file's.

Power is in microwatts, energy in microjoules, temperature in thousandths, frequency in Hz.
"""


class Kernel:
    """`Vendor` of whatever Linux knows."""

    hides = "ONEAPI_DEVICE_SELECTOR=opencl:cpu HIP_VISIBLE_DEVICES=-1"
    root = Path("/")

    @classmethod
    def build(cls, framework: str) -> str:
        """The index of PyTorch for the maker, whatever the framework."""
        return "pip with the index of PyTorch's builds for this maker"

    @classmethod
    def accelerators(cls) -> tuple[Accelerator, ...]:
        """Cards that are made to compute and are given to this process, by their numbers."""
        return tuple(_describe(index, card) for index, card in _numbered(cls.root))

    @classmethod
    def lost(cls) -> tuple[str, ...]:
        """A card that is lost has no folder: none."""
        return ()

    @classmethod
    def visible(cls, found: Sequence[Accelerator], environment: Mapping[str, str]) -> tuple[Accelerator, ...]:
        """Select the GPUs that the lists of oneAPI and of HIP allow."""
        selector = environment.get("ONEAPI_DEVICE_SELECTOR", "")
        if selector and not re.search(r"gpu|level_zero|\*", selector):
            return ()
        if (allowed := environment.get(MASK)) and found:
            # A part of a card, as 0.1, counts as the card.
            found = chosen(found, MASK, re.sub(r"\.\d+", "", allowed), {gpu.index: gpu for gpu in found})
        return shown_by_rocm(found, {name: value for name, value in environment.items() if value})

    @classmethod
    def choice(cls, own: Sequence[Accelerator]) -> dict[str, str]:
        """Choose devices for Level Zero by whole cards instead of by their tiles."""
        if all(gpu.name.startswith("Intel") for gpu in own):
            return {MASK: ",".join(gpu.word for gpu in own), "ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE"}
        return choice_of_rocm(own)

    @classmethod
    def installed(cls, root: Path) -> int:
        """Cards that are made to compute."""
        return len(_cards(root))

    @classmethod
    def sample(cls) -> list[Fields]:
        """Sample every card, with the facts that its driver reports."""
        return [{"index": index, **_sample(card)} for index, card in _numbered(cls.root)]

    @classmethod
    def describe(cls) -> dict[str, str]:
        """None: the driver is not asked for clocks and links."""
        return {}


def _cards(root: Path) -> list[Path]:
    """The device folders of the accelerators."""
    cards = [card for card in root.glob("sys/class/drm/card*") if card.name.removeprefix("card").isdigit()]
    cards.sort(key=lambda card: int(card.name.removeprefix("card")))
    return [card / "device" for card in cards if _computes(card / "device")]


def _numbered(root: Path) -> list[tuple[int, Path]]:
    """The cards that this process is given, AMD's with the numbers of ROCm's runtime if known."""
    files = root / "dev/dri"
    cards = [card for card in _cards(root) if all(is_given(files / each.name) for each in card.glob("drm/renderD*"))]
    known = kfd.numbers(root)
    if known is None or any(_text(card / "vendor") != AMD for card in cards):
        return list(enumerate(cards))
    places = [(known.get(card.resolve().name), card) for card in cards]
    return sorted((number, card) for number, card in places if number is not None)


def _computes(device: Path) -> bool:
    maker = _text(device / "vendor")
    if maker == INTEL:
        return _text(device / "device") in INTEL_DEVICES
    return maker == AMD and (_number(device / "mem_info_vram_total") or 0) >= LEAST_MEMORY_BYTES


def _describe(index: int, device: Path) -> Accelerator:
    precision: Precision = "mixed_bfloat16"
    driver = device / "driver" / "module" / "version"
    address = pci_address(device.resolve().name)  # the folder of a card is a link to that of its bus
    if _text(device / "vendor") == INTEL:
        name, memory = INTEL_DEVICES[_text(device / "device")]
        return Accelerator(index, name, memory, precision, _text(driver), address=address)
    name = _text(device / "product_name") or "AMD GPU"
    return Accelerator(
        index,
        name,
        memory_of(_number(device / "mem_info_vram_total")),
        precision,
        _text(driver),
        uuid=f"GPU-{unique}" if (unique := _text(device / "unique_id")) else "",
        address=address,
    )


def _sample(device: Path) -> Fields:
    fields: Fields = {}
    folders = [(device, SCALES), *((sensors, SENSORS) for sensors in sorted(device.glob("hwmon/hwmon*")))]
    for folder, files in folders:
        for file, (field, scale) in files.items():
            value = _number(folder / file)
            if value is not None and field not in fields:
                fields[field] = value * scale
    return fields


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""


def _number(file: Path) -> float | None:
    text = _text(file)
    return number(int(text)) if re.fullmatch(r"\d{1,25}", text, re.ASCII) else None
