"""The accelerators of this node, from the driver: TensorFlow would reserve their memory."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pynvml

from aiperf.config.sections import Precision

VISIBLE = "CUDA_VISIBLE_DEVICES"

BFLOAT16_CAPABILITY = (8, 0)
FLOAT16_CAPABILITY = (7, 0)
"""Least compute capabilities with matrix units for bfloat16 (Ampere) and float16 (Volta)."""

BFLOAT16_CPU_FLAGS = frozenset({"avx512_bf16", "amx_bf16"})


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One GPU. `index` is its number in the driver."""

    index: int
    name: str
    memory_bytes: int
    capability: tuple[int, int]
    driver: str


def find_accelerators(environment: Mapping[str, str] = os.environ) -> tuple[Accelerator, ...]:
    """The GPUs that this process may use; none without a driver."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
        found = tuple(_describe(index, driver) for index in range(pynvml.nvmlDeviceGetCount()))
    except pynvml.NVMLError:
        return ()
    finally:
        pynvml.nvmlShutdown()
    return visible(found, environment.get(VISIBLE))


def visible(found: Sequence[Accelerator], allowed: str | None) -> tuple[Accelerator, ...]:
    """The GPUs that CUDA_VISIBLE_DEVICES allows.

    Numbers are matched; names of devices (UUIDs) are only counted.
    """
    if allowed is None:
        return tuple(found)
    words = [word.strip() for word in allowed.split(",") if word.strip()]
    if all(word.isdigit() for word in words):
        by_index = {accelerator.index: accelerator for accelerator in found}
        return tuple(by_index[int(word)] for word in words if int(word) in by_index)
    return tuple(found[: len(words)])


def share_of(found: Sequence[Accelerator], replica: int, share: int) -> tuple[Accelerator, ...]:
    """The GPUs of one of `share` replicas on a node: every share-th, or one by turns."""
    own = tuple(found[replica % share :: share])
    return own or (tuple(found)[replica % len(found)],) if found else ()


def best_precision(accelerators: Sequence[Accelerator], cpu_flags: frozenset[str] | None = None) -> Precision:
    """The fastest arithmetic of the accelerators that the rules allow (16 bits or more)."""
    if accelerators:
        weakest = min(accelerator.capability for accelerator in accelerators)
        if weakest >= BFLOAT16_CAPABILITY:
            return "mixed_bfloat16"
        return "mixed_float16" if weakest >= FLOAT16_CAPABILITY else "float32"
    flags = read_cpu_flags() if cpu_flags is None else cpu_flags
    return "mixed_bfloat16" if flags & BFLOAT16_CPU_FLAGS else "float32"


def read_cpu_flags() -> frozenset[str]:
    """The features of this machine's CPU as Linux names them; none if it does not list them."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return frozenset()
    words = (line.partition(":")[2].split() for line in lines if line.startswith("flags"))
    return frozenset(next(words, []))


def _describe(index: int, driver: str) -> Accelerator:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    memory = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    return Accelerator(index, _text(pynvml.nvmlDeviceGetName(handle)), memory, (major, minor), driver)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
