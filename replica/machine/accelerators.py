"""The accelerators of this node, from the driver: TensorFlow would reserve their memory."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pynvml

from aiperf.config.sections import Precision
from replica.machine.cpu import cpu_fields

VISIBLE = "CUDA_VISIBLE_DEVICES"

UUID_PREFIXES = ("GPU-", "MIG-")

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
    known_as: str = ""
    """Its word in CUDA_VISIBLE_DEVICES if that names it by UUID (a GPU, or a slice of one)."""

    @property
    def word(self) -> str:
        """The word that stands for it in CUDA_VISIBLE_DEVICES."""
        return self.known_as or str(self.index)


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


def node_accelerators(root: Path = Path("/")) -> int:
    """The GPUs of this node by the files of its driver, whatever this process may use of them."""
    listed = len([*root.glob("proc/driver/nvidia/gpus/*")])
    return listed or len([file for file in root.glob("dev/nvidia*") if re.fullmatch(r"nvidia\d+", file.name)])


def visible(found: Sequence[Accelerator], allowed: str | None) -> tuple[Accelerator, ...]:
    """The GPUs that CUDA_VISIBLE_DEVICES allows, which NVIDIA's management library ignores.

    As CUDA reads it, the first word that names no GPU ends the list, such as "-1" or "NoDevFiles".
    Numbers are matched; UUIDs of GPUs and of MIG slices are only counted.
    """
    if allowed is None:
        return tuple(found)
    by_index = {str(accelerator.index): accelerator for accelerator in found}
    result: list[Accelerator] = []
    for word in map(str.strip, allowed.split(",")):
        if word in by_index:
            result.append(by_index[word])
        elif word.startswith(UUID_PREFIXES) and found:
            result.append(replace(found[len(result) % len(found)], known_as=word))
        else:
            break
    return tuple(result)


def why_unseen(framework: str, seen: int, environment: Mapping[str, str] = os.environ) -> str | None:
    """The complaint about a framework that sees none of this process's GPUs, else None.

    It would compute on the CPU, and the run would be reported as one on GPUs.
    """
    shown = find_accelerators(environment)
    if seen or not shown:
        return None
    gpus = f"{len(shown)} GPU{'s' if len(shown) > 1 else ''} ({shown[0].name})"
    return (
        f"the driver shows {gpus}, {framework.partition(',')[0]} sees none and would train on the CPU. Install its "
        "build for GPUs in the folder of AIPerf's sources (make run GPU=1, or pip install '.[gpu]'); to train on the "
        "CPU, hide the GPUs: export CUDA_VISIBLE_DEVICES=''"
    )


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
