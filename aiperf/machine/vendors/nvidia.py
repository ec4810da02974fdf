"""NVIDIA's GPUs, through NVML."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pynvml

from aiperf.cli.units import MIB
from aiperf.config.sections.base import Precision
from aiperf.machine.vendors.contract import Accelerator, Fields, words

VISIBLE = "CUDA_VISIBLE_DEVICES"
UUID_PREFIXES = ("GPU-", "MIG-")

BFLOAT16_CAPABILITY = (8, 0)
FLOAT16_CAPABILITY = (7, 0)
"""Least compute capabilities with matrix units for bfloat16 (Ampere) and float16 (Volta)."""


class Nvidia:
    """`Vendor` of NVIDIA."""

    hides = f"{VISIBLE}=''"
    build = "make run GPU=1, or pip install '.[gpu]'"

    @classmethod
    def accelerators(cls) -> tuple[Accelerator, ...]:
        """All that the driver lists."""
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError:
            return ()
        try:
            driver = _text(pynvml.nvmlSystemGetDriverVersion())
            return tuple(_describe(index, driver) for index in range(pynvml.nvmlDeviceGetCount()))
        except pynvml.NVMLError:
            return ()
        finally:
            pynvml.nvmlShutdown()

    @classmethod
    def visible(cls, found: Sequence[Accelerator], environment: Mapping[str, str]) -> tuple[Accelerator, ...]:
        """Those that CUDA_VISIBLE_DEVICES allows, which NVML ignores.

        As CUDA reads it, the first word that names no GPU ends the list, such as "-1" or
        "NoDevFiles". Numbers are matched; UUIDs of GPUs and of MIG slices are only counted.
        """
        allowed = environment.get(VISIBLE)
        if allowed is None:
            return tuple(found)
        by_index = {str(accelerator.index): accelerator for accelerator in found}
        result: list[Accelerator] = []
        for word in words(allowed):
            if word in by_index:
                result.append(by_index[word])
            elif word.startswith(UUID_PREFIXES) and found:
                result.append(replace(found[len(result) % len(found)], known_as=word))
            else:
                break
        return tuple(result)

    @classmethod
    def choice(cls, own: Sequence[Accelerator]) -> dict[str, str]:
        """CUDA_VISIBLE_DEVICES."""
        return {VISIBLE: ",".join(gpu.word for gpu in own)}

    @classmethod
    def installed(cls, root: Path) -> int:
        """From /proc, which lists GPUs that a container hides, or from the device files."""
        listed = len([*root.glob("proc/driver/nvidia/gpus/*")])
        return listed or len([file for file in root.glob("dev/nvidia*") if re.fullmatch(r"nvidia\d+", file.name)])

    @classmethod
    def sample(cls) -> list[Fields]:
        """Every GPU of the node."""
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError:
            return []
        try:
            return [_sample(index) for index in range(pynvml.nvmlDeviceGetCount())]
        except pynvml.NVMLError:
            return []
        finally:
            pynvml.nvmlShutdown()


def _describe(index: int, driver: str) -> Accelerator:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    precision = _precision(tuple(pynvml.nvmlDeviceGetCudaComputeCapability(handle)))
    memory = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    return Accelerator(index, _text(pynvml.nvmlDeviceGetName(handle)), memory, precision, driver)


def _precision(capability: tuple[int, ...]) -> Precision:
    if capability >= BFLOAT16_CAPABILITY:
        return "mixed_bfloat16"
    return "mixed_float16" if capability >= FLOAT16_CAPABILITY else "float32"


def _sample(index: int) -> Fields:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    fields: Fields = {"index": index}
    for name, read in FIELDS.items():
        try:
            fields[name] = read(handle)
        except pynvml.NVMLError:
            continue  # not every GPU supports every field
    return fields


def _text(value: str | bytes) -> str:
    """A text as NVML's bindings return it, which is bytes in some of their versions."""
    return value.decode() if isinstance(value, bytes) else value


FIELDS: Mapping[str, Callable[[Any], int | float | str]] = {
    "uuid": lambda gpu: _text(pynvml.nvmlDeviceGetUUID(gpu)),
    "DCGM_FI_DEV_GPU_UTIL": lambda gpu: pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
    "DCGM_FI_DEV_MEM_COPY_UTIL": lambda gpu: pynvml.nvmlDeviceGetUtilizationRates(gpu).memory,
    "DCGM_FI_DEV_FB_USED": lambda gpu: pynvml.nvmlDeviceGetMemoryInfo(gpu).used / MIB,
    "DCGM_FI_DEV_FB_TOTAL": lambda gpu: pynvml.nvmlDeviceGetMemoryInfo(gpu).total / MIB,
    "DCGM_FI_DEV_POWER_USAGE": lambda gpu: pynvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": lambda gpu: int(pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu)),
    "DCGM_FI_DEV_GPU_TEMP": lambda gpu: pynvml.nvmlDeviceGetTemperature(gpu, pynvml.NVML_TEMPERATURE_GPU),
    "DCGM_FI_DEV_SM_CLOCK": lambda gpu: pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM),
    "DCGM_FI_DEV_MEM_CLOCK": lambda gpu: pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_MEM),
}
"""In DCGM's units: percent, percent, MiB, MiB, W, mJ since the driver started, °C, MHz, MHz."""
