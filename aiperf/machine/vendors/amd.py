"""AMD's GPUs, through AMD SMI, whose Python package comes with ROCm."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aiperf.cli.units import MIB
from aiperf.config.sections.base import Precision
from aiperf.machine.vendors.contract import LEAST_MEMORY_BYTES, Accelerator, Fields, chosen

RUNTIME = "ROCR_VISIBLE_DEVICES"
HIP = "HIP_VISIBLE_DEVICES"

FLOAT16_ONLY = re.compile(r"gfx(900|902|904|906|909|10\w+)$")
"""Architectures without bfloat16 in their matrix units: Vega, RDNA 1 and 2."""


class Amd:
    """`Vendor` of AMD."""

    hides = "HIP_VISIBLE_DEVICES=-1"
    build = "pip with the index of PyTorch's builds for ROCm"

    @classmethod
    def accelerators(cls) -> tuple[Accelerator, ...]:
        """All with enough memory to train, in the driver's order."""
        with _opened() as smi:
            return tuple(_describe(smi, index, handle) for index, handle in _trainable(smi))

    @classmethod
    def visible(cls, found: Sequence[Accelerator], environment: Mapping[str, str]) -> tuple[Accelerator, ...]:
        """Those that ROCm's runtime shows, and of them those that HIP does.

        HIP reads CUDA's variable where its own is not set. Its numbers count what the runtime shows
        (ROCm documentation, "GPU isolation techniques").
        """
        shown = chosen(found, environment.get(RUNTIME))
        return chosen(shown, environment.get(HIP, environment.get("CUDA_VISIBLE_DEVICES")))

    @classmethod
    def choice(cls, own: Sequence[Accelerator]) -> dict[str, str]:
        """The runtime shows these, and HIP all that the runtime shows."""
        return {
            RUNTIME: ",".join(gpu.word for gpu in own),
            HIP: ",".join(str(number) for number in range(len(own))),
        }

    @classmethod
    def installed(cls, root: Path) -> int:
        """Nodes of the kernel's compute driver that have SIMD units: those of CPUs have none."""
        nodes = root.glob("sys/class/kfd/kfd/topology/nodes/*/properties")
        return sum(bool(re.search(r"^simd_count [1-9]", _read(file), re.MULTILINE)) for file in nodes)

    @classmethod
    def sample(cls) -> list[Fields]:
        """Every GPU of the node."""
        with _opened() as smi:
            return [_sample(smi, index, handle) for index, handle in _trainable(smi)]


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
        smi.amdsmi_shut_down()


def _trainable(smi: Any) -> list[tuple[int, Any]]:
    """The handles of GPUs with enough memory, with their numbers in the driver."""
    handles = list(_asked(smi.amdsmi_get_processor_handles) or []) if smi is not None else []
    return [each for each in enumerate(handles) if _memory_bytes(smi, each[1]) >= LEAST_MEMORY_BYTES]


def _memory_bytes(smi: Any, handle: Any) -> int:
    memory = _asked(smi.amdsmi_get_gpu_vram_usage, handle) or {}
    return int(memory.get("vram_total", 0)) * MIB


def _describe(smi: Any, index: int, handle: Any) -> Accelerator:
    chip = _asked(smi.amdsmi_get_gpu_asic_info, handle) or {}
    driver = _asked(smi.amdsmi_get_gpu_driver_info, handle) or {}
    return Accelerator(
        index,
        str(chip.get("market_name", "AMD GPU")),
        _memory_bytes(smi, handle),
        _precision(str(chip.get("target_graphics_version", ""))),
        str(driver.get("driver_version", "")),
    )


def _precision(architecture: str) -> Precision:
    return "mixed_float16" if FLOAT16_ONLY.match(architecture) else "mixed_bfloat16"


def _sample(smi: Any, index: int, handle: Any) -> Fields:
    fields: Fields = {"index": index}
    for name, read in FIELDS.items():
        value = _asked(read, smi, handle)
        if value is not None and value != "N/A":
            fields[name] = value
    return fields


def _asked(read: Callable[..., Any], *arguments: Any) -> Any:
    """An answer; None for a question that this GPU or this version of the library does not know."""
    try:
        return read(*arguments)
    except Exception:  # the library's errors have no base of their own that all versions share
        return None


def _power(smi: Any, gpu: Any) -> Any:
    """Watts: now where the chip says so (Instinct MI300), else the mean of the last moment."""
    power = smi.amdsmi_get_power_info(gpu)
    now = power["current_socket_power"]
    return now if isinstance(now, int) and now > 0 else power["average_socket_power"]


def _energy(smi: Any, gpu: Any) -> float:
    """Millijoules: the counter in units of its resolution, which is in microjoules."""
    counter = smi.amdsmi_get_energy_count(gpu)
    return float(counter["energy_accumulator"] * counter["counter_resolution"] / 1000)


def _temperature(smi: Any, gpu: Any) -> Any:
    return smi.amdsmi_get_temp_metric(gpu, smi.AmdSmiTemperatureType.HOTSPOT, smi.AmdSmiTemperatureMetric.CURRENT)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii")
    except (OSError, ValueError):
        return ""


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
}
"""In DCGM's units, which are also AMD SMI's but for the energy."""
