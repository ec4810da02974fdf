"""The place of the native library that `make native` builds."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "AIPERF_NATIVE"
"""Names the library if it lies elsewhere."""


def library() -> Path:
    """The shared library, built or not."""
    named = os.environ.get(VARIABLE)
    root = Path(__file__).resolve().parents[2]
    return Path(named) if named else root / "build" / "native" / "libaiperf_micro.so"
