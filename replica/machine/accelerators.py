"""The accelerators of this node, from the driver: TensorFlow would reserve their memory."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pynvml

from aiperf.config.sections import Precision
from replica.machine.cpu import cpu_fields

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
        driver = text_of(pynvml.nvmlSystemGetDriverVersion())
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
    return frozenset(next((flags.split() for flags in cpu_fields("flags")), []))


def _describe(index: int, driver: str) -> Accelerator:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    memory = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    return Accelerator(index, text_of(pynvml.nvmlDeviceGetName(handle)), memory, (major, minor), driver)


def text_of(value: str | bytes) -> str:
    """A text as NVML's bindings return it, which is bytes in some of their versions."""
    return value.decode() if isinstance(value, bytes) else value
