"""The memory that a training takes: of the host, and of an accelerator as long as it warms up."""

from __future__ import annotations

import contextlib
import ctypes
import logging
from collections.abc import Iterator
from typing import Any

import torch

from replica.trainer.failures import is_out_of_memory

log = logging.getLogger(__name__)

WARM_UP_BYTES = 3 * 10**9
"""Of an accelerator, that ranks may take next to a training before their own begins."""

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


@contextlib.contextmanager
def little_memory(device: Any) -> Iterator[None]:
    """A block that may lack memory: of an accelerator it takes little more than is held before it.

    What it takes is given back. An exception that says that memory is short ends it, and no more.
    """
    module = torch.get_device_module(device)
    limit = getattr(module, "set_per_process_memory_fraction", lambda fraction: None)
    total = module.mem_get_info()[1] if hasattr(module, "mem_get_info") else 0
    if total:
        limit(min(1.0, (module.memory_reserved() + WARM_UP_BYTES) / total))
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        log.info("libraries choose the rest of their algorithms as the training begins: %s", error)
    finally:
        if total:
            limit(1.0)
        getattr(module, "empty_cache", lambda: None)()
