"""NVIDIA's GPUs, through NVML."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pynvml

from aiperf.cli.packages import is_checkout, to_install
from aiperf.cli.units import MIB
from aiperf.config.sections.base import Precision
from aiperf.machine.vendors.contract import Accelerator, Fields, words

VISIBLE = "CUDA_VISIBLE_DEVICES"
ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
"""NVML's order. CUDA's own begins with the fastest GPU, so that numbers would name others."""

UUID_PREFIXES = ("GPU-", "MIG-")

BFLOAT16_CAPABILITY = (8, 0)
FLOAT16_CAPABILITY = (7, 0)
"""Least compute capabilities with matrix units for bfloat16 (Ampere) and float16 (Volta)."""


class Nvidia:
    """`Vendor` of NVIDIA."""

    hides = f"{VISIBLE}=''"
    build = "make run GPU=1, or pip install '.[gpu]'" if is_checkout() else to_install("gpu")

    @classmethod
    def accelerators(cls) -> tuple[Accelerator, ...]:
        """All that the driver lists; of a GPU that is cut into slices (MIG), the slices."""
        with _opened() as opened:
            if not opened:
                return ()
            try:
                driver = _text(pynvml.nvmlSystemGetDriverVersion())
                whole = [_describe(index, driver) for index in range(pynvml.nvmlDeviceGetCount())]
            except pynvml.NVMLError:
                return ()
            return tuple(part for gpu in whole for part in (_slices(gpu) or (gpu,)))

    @classmethod
    def visible(cls, found: Sequence[Accelerator], environment: Mapping[str, str]) -> tuple[Accelerator, ...]:
        """Those that CUDA_VISIBLE_DEVICES allows, which NVML ignores.

        As CUDA reads it, the first word that names no GPU ends the list, such as "-1" or
        "NoDevFiles". A number stands for a GPU, or for the first of its slices, of which CUDA shows
        a process one. UUIDs that the driver does not list here are only counted.
        """
        allowed = environment.get(VISIBLE)
        if allowed is None:
            return tuple(found)
        by_word = {str(each.index): each for each in reversed(found)} | {
            each.known_as: each for each in found if each.known_as
        }
        result: list[Accelerator] = []
        for word in words(allowed):
            if word in by_word:
                result.append(by_word[word])
            elif word.startswith(UUID_PREFIXES) and found:
                result.append(replace(found[len(result) % len(found)], known_as=word))
            else:
                break
        return tuple(result)

    @classmethod
    def choice(cls, own: Sequence[Accelerator]) -> dict[str, str]:
        """CUDA_VISIBLE_DEVICES, with numbers in the driver's order."""
        return {VISIBLE: ",".join(gpu.word for gpu in own), **ORDER}

    @classmethod
    def installed(cls, root: Path) -> int:
        """From /proc, which lists GPUs that a container hides, or from the device files."""
        listed = len([*root.glob("proc/driver/nvidia/gpus/*")])
        return listed or len([file for file in root.glob("dev/nvidia*") if re.fullmatch(r"nvidia\d+", file.name)])

    @classmethod
    def sample(cls) -> list[Fields]:
        """Every GPU of the node."""
        with _opened() as opened, contextlib.suppress(pynvml.NVMLError):
            return [_sample(index) for index in range(pynvml.nvmlDeviceGetCount())] if opened else []
        return []


@contextlib.contextmanager
def _opened() -> Iterator[bool]:
    """NVML, ready to be asked; False if there is no driver."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield False
        return
    try:
        yield True
    finally:
        pynvml.nvmlShutdown()


def _slices(gpu: Accelerator) -> tuple[Accelerator, ...]:
    """The slices of a GPU by MIG, with their own memory; none if it is whole or has no MIG."""
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(gpu.index)
        if pynvml.nvmlDeviceGetMigMode(handle)[0] != pynvml.NVML_DEVICE_MIG_ENABLE:
            return ()
        places = range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle))
    except pynvml.NVMLError:
        return ()
    found = []
    for place in places:
        with contextlib.suppress(pynvml.NVMLError):  # not every place has a slice
            part = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place)
            memory = int(pynvml.nvmlDeviceGetMemoryInfo(part).total)
            found.append(replace(gpu, memory_bytes=memory, known_as=_text(pynvml.nvmlDeviceGetUUID(part))))
    return tuple(found)


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
