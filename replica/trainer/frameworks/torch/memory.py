"""The memory that a training takes: of the host, and of an accelerator while it warms up."""

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any

import torch

WARM_UP_BYTES, WARM_UP_SHARE = 3 * 10**9, 0.08
"""Bytes of an accelerator, and part of its memory if that is more, that warm ranks may take while
another training uses it: trainings are planned with 0.85 of it less 2 GB. Of one that replicas
share, they take the bytes alone: less is left beside trainings there (`search_space.limits`)."""

TRIM_THRESHOLD, MMAP_MAX = -1, -4
"""Parameters of glibc's `mallopt` (malloc.h)."""


def keep_freed_memory() -> None:
    """Let freed memory stay with this process, for the next step.

    glibc maps large blocks anew and gives them back at once: every step would pay for its
    activations again, zeroed by the kernel page by page. No-op with another C library.
    """
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        for parameter, value in ((MMAP_MAX, 0), (TRIM_THRESHOLD, -1)):
            library.mallopt(parameter, value)


def limit_memory(part: float) -> None:
    """Let this process take only a part of its accelerator's memory, if PyTorch can limit it."""
    module = torch.get_device_module(torch.accelerator.current_accelerator())
    getattr(module, "set_per_process_memory_fraction", lambda fraction: None)(part)


def memory_part(module: Any) -> float:
    """The part of its accelerator's memory that this process may take.

    `module` is PyTorch's module of the device.
    """
    return float(getattr(module, "get_per_process_memory_fraction", lambda: 1.0)())


def warm_up_bytes(total: float, part: float) -> float:
    """Bytes that warm ranks may take of an accelerator of which their replica has a part."""
    return WARM_UP_BYTES if part < 1 else max(WARM_UP_BYTES, WARM_UP_SHARE * total)


@contextlib.contextmanager
def little_memory(device: Any) -> Iterator[None]:
    """Run a block that may take little of an accelerator's memory, which is given back.

    What is held before it counts only if replicas share the accelerator.
    """
    module = torch.get_device_module(device)
    limit = getattr(module, "set_per_process_memory_fraction", lambda fraction: None)
    total, part = module.mem_get_info()[1] if hasattr(module, "mem_get_info") else 0, memory_part(module)
    if total:
        held = module.memory_reserved() if part == 1 else 0
        limit(min(part, (held + warm_up_bytes(total, part)) / total))
    try:
        yield
    finally:
        if total:
            limit(part)
        getattr(module, "empty_cache", lambda: None)()
