"""Writes that outlive a crash of the machine, and files that are not worth that time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

# A context variable reaches the writers below without a parameter on the way, and in no other task
# of the process.
_volatile = ContextVar("volatile", default=False)


def sync(descriptor: int) -> None:
    """Flush a file to the device. Raises OSError."""
    if not _volatile.get():
        os.fsync(descriptor)


@contextmanager
def volatile() -> Iterator[None]:
    """Write without `sync` in this context: what a crash of the machine takes can be made again.

    A process that dies loses nothing that it wrote.
    """
    token = _volatile.set(True)
    try:
        yield
    finally:
        _volatile.reset(token)
