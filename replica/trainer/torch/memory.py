"""The host's memory allocator, where the trained tensors live in the host's memory."""

from __future__ import annotations

import contextlib
import ctypes

TRIM_THRESHOLD, MMAP_MAX, ARENA_MAX = -1, -4, -8
"""Parameters of glibc's `mallopt` (malloc.h)."""


def keep_freed_memory() -> None:
    """Let freed memory stay with this process, for the next step.

    glibc gives large blocks back to the system at once, and each step pays for getting them again
    zeroed, page by page. No-op with another C library.
    """
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        # One arena: those of further threads, such as autograd's, end at 64 MiB.
        for parameter, value in ((MMAP_MAX, 0), (TRIM_THRESHOLD, -1), (ARENA_MAX, 1)):
            library.mallopt(parameter, value)
