"""Names in directories."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from aiperf.storage.durable import sync


def sync_directory(path: Path) -> None:
    """Make new names in a directory durable.

    An error is of no consequence: some network file systems refuse fsync on directories, and the
    name is visible already.
    """
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            sync(descriptor)
        finally:
            os.close(descriptor)
