"""The memory that a training takes: of the host, and of an accelerator while it warms up."""

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
"""Bytes of an accelerator that warm ranks may take while another training uses it."""

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
    """Run a block that may take little more of an accelerator's memory than is held before it.

    Its memory is given back. An exception that reports a lack of memory only ends the block.
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
