"""The host's memory allocator, where the trained tensors live in the host's memory."""

from __future__ import annotations

import contextlib
import ctypes

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
