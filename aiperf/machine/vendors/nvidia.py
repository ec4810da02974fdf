"""NVIDIA's GPUs, through NVML."""

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, starmap
from pathlib import Path
from typing import Any

import pynvml

from aiperf.cli.packages import is_checkout, to_install
from aiperf.cli.units import MIB
from aiperf.config.frameworks import DEFAULT_FRAMEWORK, TRAITS
from aiperf.config.sections.base import Precision
from aiperf.machine.vendors.contract import (
    LEAST_MEMORY_BYTES,
    MOST_CARDS,
    Accelerator,
    Fields,
    Once,
    asked,
    chosen,
    fields_of,
    memory_of,
    number,
    pci_address,
    text,
)

VISIBLE = "CUDA_VISIBLE_DEVICES"
ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
"""NVML's order. CUDA's own begins with the fastest GPU, so that numbers would name others."""

UUID_PREFIXES = ("GPU-", "MIG-")

BFLOAT16_CAPABILITY = (8, 0)
FLOAT16_CAPABILITY = (7, 0)
"""Least compute capabilities with matrix units for bfloat16 (Ampere) and float16 (Volta)."""


NO_DRIVER = (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
"""Answers on a node that has no GPU in use, such as the image of a container."""


class Nvidia:
    """`Vendor` of NVIDIA."""

    hides = f"{VISIBLE}=''"

    @classmethod
    def build(cls, framework: str) -> str:
        """The target of the Makefile, and the extra; an extra does not replace PyTorch for CPUs."""
        own = "" if framework == DEFAULT_FRAMEWORK else f" FRAMEWORK={framework}"
        extra = TRAITS[framework].gpu_extra
        by_hand = f"pip install '.[{extra}]'" if extra != framework else "see docs/frameworks.md"
        return f"make run GPU=1{own}, or {by_hand}" if is_checkout() else to_install(extra)

    @classmethod
    def accelerators(cls) -> tuple[Accelerator, ...]:
        """List the GPUs that answer; of a GPU that is cut into slices (MIG), the slices."""
        with _opened() as opened:
            all_of_them = [_described(index) for index in range(_count() if opened else 0)]
            found = [(one, _slices(one)) for one in all_of_them if isinstance(one, Accelerator)]
            whole = [slices is None for _, slices in found]
            # CUDA counts those that it can use, and slices behind whole ones: next to a lost GPU,
            # or to one that is cut, numbers would name others.
            by_uuid = len(found) < len(all_of_them) or (any(whole) and not all(whole))
            gpus = [(replace(one, known_as=one.uuid) if by_uuid else one, slices) for one, slices in found]
            return tuple(part for gpu, slices in gpus for part in ((gpu,) if slices is None else slices))

    @classmethod
    def lost(cls) -> tuple[str, ...]:
        """List the GPUs whose handle the driver refuses: "fallen off the bus".

        All of them, if it refuses itself, as after an update without a restart.
        """
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            return () if error.value in NO_DRIVER else (f"all GPUs: {text(str(error), type(error).__name__)}",)
        except Exception:  # a damaged library
            return ()
        asked(pynvml.nvmlShutdown)
        with _opened() as opened:
            found = map(_described, range(_count() if opened else 0))
            return tuple(filter(None, (each if isinstance(each, str) else _uncut(each) for each in found)))

    @classmethod
    def visible(cls, found: Sequence[Accelerator], environment: Mapping[str, str]) -> tuple[Accelerator, ...]:
        """Select the GPUs that CUDA_VISIBLE_DEVICES allows, which NVML ignores.

        A number stands for a GPU, or for the first of its slices, of which CUDA shows a process
        one. Without the variable, cards for screens next to larger ones are left out.
        """
        allowed = environment.get(VISIBLE)
        if allowed is None:
            large = [each for each in found if each.memory_bytes >= LEAST_MEMORY_BYTES]
            return tuple(large or found)
        # In reverse, so that of the slices of a GPU the first one stays.
        numbers = {each.index: each for each in reversed(found)}
        return chosen(found, VISIBLE, allowed, numbers, _by_uuid) if found else ()

    @classmethod
    def choice(cls, own: Sequence[Accelerator]) -> dict[str, str]:
        """CUDA_VISIBLE_DEVICES, with numbers in the driver's order."""
        return {VISIBLE: ",".join(gpu.word for gpu in own), **ORDER}

    @classmethod
    def installed(cls, root: Path) -> int:
        """Count the GPUs in /proc, which lists those that a container hides, or device files."""
        listed = len([*root.glob("proc/driver/nvidia/gpus/*")])
        return listed or len([file for file in root.glob("dev/nvidia*") if re.fullmatch(r"nvidia\d+", file.name)])

    @classmethod
    def sample(cls) -> list[Fields]:
        """Sample every GPU of the node that answers."""
        with _opened() as opened:
            handles = [
                (index, asked(pynvml.nvmlDeviceGetHandleByIndex, index)) for index in range(_count() if opened else 0)
            ]
            return [_sample(index, handle) for index, handle in handles if handle is not None]

    @classmethod
    def describe(cls) -> dict[str, str]:
        """Highest clocks, NVLinks, and the places of pairs of GPUs in the node, each counted."""
        with _opened() as opened:
            handles = [asked(pynvml.nvmlDeviceGetHandleByIndex, index) for index in range(_count() if opened else 0)]
            gpus = [handle for handle in handles if handle is not None]
            found = {
                "accelerator_clock": _counted(map(_clock, gpus)),
                "accelerator_links": _counted(map(_links, gpus)),
                "accelerator_topology": _counted(starmap(_place, combinations(gpus, 2))),
            }
        return {name: known for name, known in found.items() if known}


NVLINKS = {1: "1", 2: "2", 3: "2.2", 4: "3", 5: "3.1", 6: "4", 7: "5", 8: "6"}
"""Generations of NVLink by NVML's numbers (NVML_NVLINK_VERSION_*)."""

PLACES = {
    0: "on one board",
    10: "at one switch",
    20: "at several switches",
    30: "at one host bridge",
    40: "at one processor",
    50: "at different processors",
}
"""Places of two GPUs by their common ancestor (NVML_TOPOLOGY_*)."""


def _counted(texts: Iterable[str]) -> str:
    return "; ".join(f"{times} x {known}" for known, times in Counter(filter(None, texts)).most_common())


def _clock(gpu: Any) -> str:
    most = number(asked(pynvml.nvmlDeviceGetMaxClockInfo, gpu, pynvml.NVML_CLOCK_SM))
    return f"{most:g} MHz" if most else ""


def _links(gpu: Any) -> str:
    """The links of a GPU that are up, and their generation."""
    links = range(pynvml.NVML_NVLINK_MAX_LINKS)
    up = [link for link in links if asked(pynvml.nvmlDeviceGetNvLinkState, gpu, link) == pynvml.NVML_FEATURE_ENABLED]
    version = number(asked(pynvml.nvmlDeviceGetNvLinkVersion, gpu, up[0])) if up else None
    return f"{len(up)} NVLinks {NVLINKS.get(int(version), '') if version else ''}".rstrip() if up else ""


def _place(gpu: Any, other: Any) -> str:
    level = number(asked(pynvml.nvmlDeviceGetTopologyCommonAncestor, gpu, other))
    return PLACES.get(int(level), "") if level is not None else ""


@contextlib.contextmanager
def _opened() -> Iterator[bool]:
    """NVML, ready to be asked; False if there is no driver."""
    try:
        pynvml.nvmlInit()
    except Exception:  # a driver of another version, a damaged library
        yield False
        return
    try:
        yield True
    finally:
        asked(pynvml.nvmlShutdown)


def _count() -> int:
    return int(number(asked(pynvml.nvmlDeviceGetCount), MOST_CARDS) or 0)


def _uncut(gpu: Accelerator) -> str:
    """The complaint about a GPU that is to be cut into slices and has none; empty otherwise."""
    if _slices(gpu) != ():
        return ""
    cut, undo = f"nvidia-smi mig -i {gpu.index} -cgi PROFILE -C", f"nvidia-smi -i {gpu.index} -mig 0"
    return f"GPU {gpu.index}: MIG is on, and it has no slice: {cut}, or {undo}"


def _slices(gpu: Accelerator) -> tuple[Accelerator, ...] | None:
    """The slices of a GPU by MIG, with their own memory; None if it is whole."""
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(gpu.index)
        if pynvml.nvmlDeviceGetMigMode(handle)[0] != pynvml.NVML_DEVICE_MIG_ENABLE:
            return None
        places = int(number(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle), MOST_CARDS) or 0)
    except Exception:  # no MIG, or a version of the library without it
        return None
    parts = [asked(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, place) for place in range(places)]
    found = [(part, text(asked(pynvml.nvmlDeviceGetUUID, part))) for part in parts if part is not None]
    return tuple(replace(gpu, memory_bytes=_memory(part), known_as=uuid) for part, uuid in found if uuid)


def _described(index: int) -> Accelerator | str:
    """A GPU, each fact by itself; the error of one that does not answer."""
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    except Exception as error:
        return f"GPU {index}: {text(str(error), type(error).__name__)}"
    return f"GPU {index}: no answer" if handle is None else _from_handle(index, handle)


def _from_handle(index: int, handle: Any) -> Accelerator:
    return Accelerator(
        index,
        text(asked(pynvml.nvmlDeviceGetName, handle), "NVIDIA GPU"),
        _memory(handle),
        _precision(asked(pynvml.nvmlDeviceGetCudaComputeCapability, handle)),
        text(asked(pynvml.nvmlSystemGetDriverVersion)),
        exclusive=asked(pynvml.nvmlDeviceGetComputeMode, handle) == pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS,
        uuid=text(asked(pynvml.nvmlDeviceGetUUID, handle)),
        address=pci_address(asked(lambda: pynvml.nvmlDeviceGetPciInfo(handle).busId)),
    )


def _by_uuid(word: str) -> Accelerator | None:
    """A GPU, or a slice of one, that the driver does not list here."""
    if not word.startswith(UUID_PREFIXES):
        return None
    with _opened() as opened:
        handle = asked(pynvml.nvmlDeviceGetHandleByUUID, word) if opened else None
        if handle is None:
            return None
        whole = (
            asked(pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle, handle) if word.startswith("MIG-") else handle
        )
        index = int(number(asked(pynvml.nvmlDeviceGetIndex, whole), MOST_CARDS) or 0)
        return replace(_from_handle(index, whole or handle), memory_bytes=_memory(handle), known_as=word)


def _memory(handle: Any) -> int:
    return memory_of(asked(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle).total))


def _precision(capability: Any) -> Precision:
    pair = tuple(capability) if isinstance(capability, list | tuple) else ()
    if len(pair) != 2 or None in map(number, pair):
        return "float32"
    if pair >= BFLOAT16_CAPABILITY:
        return "mixed_bfloat16"
    return "mixed_float16" if pair >= FLOAT16_CAPABILITY else "float32"


def _sample(index: int, handle: Any) -> Fields:
    nvml = Once(pynvml)
    return fields_of(index, {name: partial(read, nvml, handle) for name, read in FIELDS.items()})


def _asks(name: str) -> Callable[[Any, Any], Any]:
    """A question of NVML about a GPU, which older versions may not know."""

    def ask(nvml: Any, gpu: Any) -> Any:
        return getattr(nvml, f"nvmlDeviceGet{name}")(gpu)

    return ask


def _ecc_errors(nvml: Any, gpu: Any, kind: str) -> Any:
    """Errors since the driver was loaded."""
    return nvml.nvmlDeviceGetTotalEccErrors(
        gpu, getattr(nvml, f"NVML_MEMORY_ERROR_TYPE_{kind}"), nvml.NVML_VOLATILE_ECC
    )


def _field(nvml: Any, gpu: Any, field: int) -> int | None:
    """A counter among the fields of NVML, as an unsigned long; None if this GPU has none."""
    (found,) = nvml.nvmlDeviceGetFieldValues(gpu, [field])
    wide = {
        pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
        pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
        pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
    }
    name = wide.get(found.valueType)
    return getattr(found.value, name) if found.nvmlReturn == pynvml.NVML_SUCCESS and name is not None else None


FIELDS: Mapping[str, Callable[[Any, Any], Any]] = {
    "uuid": lambda nvml, gpu: text(nvml.nvmlDeviceGetUUID(gpu)),
    "DCGM_FI_DEV_GPU_UTIL": lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
    "DCGM_FI_DEV_MEM_COPY_UTIL": lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).memory,
    "DCGM_FI_DEV_FB_USED": lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used / MIB,
    "DCGM_FI_DEV_FB_TOTAL": lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).total / MIB,
    "DCGM_FI_DEV_POWER_USAGE": lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": lambda nvml, gpu: nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) * 1,
    "DCGM_FI_DEV_GPU_TEMP": lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(gpu, pynvml.NVML_TEMPERATURE_GPU),
    "DCGM_FI_DEV_SM_CLOCK": lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM),
    "DCGM_FI_DEV_MEM_CLOCK": lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_MEM),
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": _asks("CurrentClocksEventReasons"),
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": lambda nvml, gpu: _ecc_errors(nvml, gpu, "CORRECTED"),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": lambda nvml, gpu: _ecc_errors(nvml, gpu, "UNCORRECTED"),
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": lambda nvml, gpu: nvml.nvmlDeviceGetRemappedRows(gpu)[0],
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": lambda nvml, gpu: nvml.nvmlDeviceGetRemappedRows(gpu)[1],
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": lambda nvml, gpu: int(nvml.nvmlDeviceGetRemappedRows(gpu)[3]),
    "DCGM_FI_DEV_PCIE_LINK_WIDTH": _asks("CurrPcieLinkWidth"),
    "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH": _asks("MaxPcieLinkWidth"),
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": _asks("PcieReplayCounter"),
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": lambda nvml, gpu: _field(
        nvml, gpu, pynvml.NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL
    ),
    "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": lambda nvml, gpu: _field(
        nvml, gpu, pynvml.NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL
    ),
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": lambda nvml, gpu: _field(
        nvml, gpu, pynvml.NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL
    ),
}
"""Telemetry in DCGM's units: percent, percent, MiB, MiB, W, mJ since driver start, °C, MHz, MHz;
then reasons as bits, and counts of errors and lanes."""
