"""AMD's GPUs, through AMD SMI, whose Python package comes with ROCm."""

import importlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from aiperf.cli.units import MIB
from aiperf.config.sections.base import Precision
from aiperf.machine.vendors import kfd
from aiperf.machine.vendors.contract import (
    LEAST_MEMORY_BYTES,
    MOST_BYTES,
    MOST_CARDS,
    Accelerator,
    Fields,
    Once,
    asked,
    fields_of,
    memory_of,
    number,
    pci_address,
    text,
)
from aiperf.machine.vendors.kfd import HIP, choice_of_rocm, shown_by_rocm

FLOAT16_ONLY = re.compile(r"gfx(900|902|904|906|909|10\w+)$")
"""Architectures without bfloat16 in their matrix units: Vega, RDNA 1 and 2."""


class Amd:
    """`Vendor` of AMD."""

    hides = "HIP_VISIBLE_DEVICES=-1"
    root = Path("/")

    @classmethod
    def build(cls, framework: str) -> str:
        """The index of PyTorch for ROCm, whatever the framework."""
        return "pip with the index of PyTorch's builds for ROCm"

    @classmethod
    def accelerators(cls) -> tuple[Accelerator, ...]:
        """List the GPUs with enough memory to train, in the runtime's order."""
        with _opened() as smi:
            return tuple(_describe(smi, index, handle) for index, handle in _trainable(smi, cls.root))

    @classmethod
    def lost(cls) -> tuple[str, ...]:
        """Report none: GPUs that AMD SMI does not list have no name."""
        return ()

    @classmethod
    def visible(cls, found: Sequence[Accelerator], environment: Mapping[str, str]) -> tuple[Accelerator, ...]:
        """Select the GPUs that ROCm's runtime shows, and of them those that HIP does.

        HIP reads CUDA's variable if its own is not set. Its numbers count what the runtime shows
        (ROCm documentation, "GPU isolation techniques").
        """
        return shown_by_rocm(found, environment, HIP if HIP in environment else "CUDA_VISIBLE_DEVICES")

    @classmethod
    def choice(cls, own: Sequence[Accelerator]) -> dict[str, str]:
        """The runtime shows these, and HIP all that the runtime shows."""
        return choice_of_rocm(own)

    @classmethod
    def installed(cls, root: Path) -> int:
        """Nodes of the kernel's compute driver that have SIMD units: those of CPUs have none."""
        return len(kfd.read_nodes(root))

    @classmethod
    def sample(cls) -> list[Fields]:
        """Sample every GPU of the node."""
        with _opened() as smi:
            return [_sample(smi, index, handle) for index, handle in _trainable(smi, cls.root)]

    @classmethod
    def describe(cls) -> dict[str, str]:
        """None: the driver is not asked for clocks and links."""
        return {}


@contextmanager
def _opened() -> Iterator[Any]:
    """The package, ready to be asked; None if it is not there, or finds no driver."""
    smi = None
    try:
        smi = importlib.import_module("amdsmi")
        smi.amdsmi_init()
    except Exception:  # its library may be missing, too, or be that of another driver
        yield None
        return
    try:
        yield smi
    finally:
        with suppress(Exception):
            smi.amdsmi_shut_down()


def _trainable(smi: Any, root: Path) -> list[tuple[int, Any]]:
    """The handles of GPUs with enough memory, or of unknown memory, with the runtime's numbers.

    Those that the runtime does not show are left out. AMD SMI's own numbers stand for the runtime's
    if these are not known.
    """
    handles = asked(lambda: [*smi.amdsmi_get_processor_handles()]) if smi is not None else None
    listed = list(enumerate(handles[:MOST_CARDS] if isinstance(handles, list | tuple) else ()))
    known = kfd.numbers(root)
    places = [_address(smi, handle) for _, handle in listed] if known else []
    if known is not None and all(places):
        listed = [(known[place], handle) for place, (_, handle) in zip(places, listed, strict=False) if place in known]
        listed.sort(key=lambda each: each[0])
    return [
        (index, handle) for index, handle in listed if (_size(smi, handle) or LEAST_MEMORY_BYTES) >= LEAST_MEMORY_BYTES
    ]


def _address(smi: Any, handle: Any) -> str:
    return pci_address(asked(lambda: smi.amdsmi_get_gpu_device_bdf(handle)))


def _size(smi: Any, handle: Any) -> float | None:
    """Bytes of its memory; None if AMD SMI does not say, as of MI300A, which shares the CPU's."""
    size = number(asked(lambda: smi.amdsmi_get_gpu_vram_usage(handle)["vram_total"]), MOST_BYTES / MIB)
    return size and size * MIB


def _describe(smi: Any, index: int, handle: Any) -> Accelerator:
    uuid = text(asked(lambda: smi.amdsmi_get_gpu_asic_info(handle)["asic_serial"]))
    return Accelerator(
        index,
        text(asked(lambda: smi.amdsmi_get_gpu_asic_info(handle)["market_name"]), "AMD GPU"),
        memory_of(_size(smi, handle)),
        _precision(text(asked(lambda: smi.amdsmi_get_gpu_asic_info(handle)["target_graphics_version"]))),
        text(asked(lambda: smi.amdsmi_get_gpu_driver_info(handle)["driver_version"])),
        uuid=f"GPU-{uuid.lower().removeprefix('0x')}" if uuid else "",
        address=_address(smi, handle),
    )


def _precision(architecture: str) -> Precision:
    return "mixed_float16" if FLOAT16_ONLY.match(architecture) else "mixed_bfloat16"


def _sample(smi: Any, index: int, handle: Any) -> Fields:
    once = Once(smi)
    return fields_of(index, {name: partial(read, once, handle) for name, read in FIELDS.items()})


def _power(smi: Any, gpu: Any) -> Any:
    """Watts: the present ones if the chip reports them (Instinct MI300), else a short mean."""
    power = smi.amdsmi_get_power_info(gpu)
    return number(power.get("current_socket_power")) or power["average_socket_power"]


def _energy(smi: Any, gpu: Any) -> float:
    """Millijoules: the counter in units of its resolution, which is in microjoules."""
    counter = smi.amdsmi_get_energy_count(gpu)
    return float(counter["energy_accumulator"] * counter["counter_resolution"] / 1000)


def _temperature(smi: Any, gpu: Any) -> Any:
    return smi.amdsmi_get_temp_metric(gpu, smi.AmdSmiTemperatureType.HOTSPOT, smi.AmdSmiTemperatureMetric.CURRENT)


FIELDS: Mapping[str, Callable[[Any, Any], Any]] = {
    "uuid": lambda smi, gpu: smi.amdsmi_get_gpu_device_uuid(gpu),
    "DCGM_FI_DEV_GPU_UTIL": lambda smi, gpu: smi.amdsmi_get_gpu_activity(gpu)["gfx_activity"],
    "DCGM_FI_DEV_MEM_COPY_UTIL": lambda smi, gpu: smi.amdsmi_get_gpu_activity(gpu)["umc_activity"],
    "DCGM_FI_DEV_FB_USED": lambda smi, gpu: smi.amdsmi_get_gpu_vram_usage(gpu)["vram_used"],
    "DCGM_FI_DEV_FB_TOTAL": lambda smi, gpu: smi.amdsmi_get_gpu_vram_usage(gpu)["vram_total"],
    "DCGM_FI_DEV_POWER_USAGE": _power,
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": _energy,
    "DCGM_FI_DEV_GPU_TEMP": _temperature,
    "DCGM_FI_DEV_SM_CLOCK": lambda smi, gpu: smi.amdsmi_get_clock_info(gpu, smi.AmdSmiClkType.GFX)["clk"],
    "DCGM_FI_DEV_MEM_CLOCK": lambda smi, gpu: smi.amdsmi_get_clock_info(gpu, smi.AmdSmiClkType.MEM)["clk"],
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": lambda smi, gpu: smi.amdsmi_get_gpu_total_ecc_count(gpu)["correctable_count"],
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": lambda smi, gpu: smi.amdsmi_get_gpu_total_ecc_count(gpu)["uncorrectable_count"],
    "DCGM_FI_DEV_PCIE_LINK_WIDTH": lambda smi, gpu: smi.amdsmi_get_pcie_info(gpu)["pcie_metric"]["pcie_width"],
    "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH": lambda smi, gpu: smi.amdsmi_get_pcie_info(gpu)["pcie_static"]["max_pcie_width"],
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": lambda smi, gpu: smi.amdsmi_get_pcie_info(gpu)["pcie_metric"][
        "pcie_replay_count"
    ],
}
"""Telemetry in DCGM's units, which are also AMD SMI's except for the energy."""
