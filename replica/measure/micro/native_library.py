"""The places of the native libraries that `make native` builds, and which of them to use."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

VARIABLE = "AIPERF_NATIVE"
"""Names the library on oneDNN if it lies elsewhere; the one on cuDNN lies beside it."""

CUDNN = "libaiperf_micro_cudnn.so"


def library() -> Path:
    """The shared library on oneDNN, built or not."""
    named = os.environ.get(VARIABLE)
    root = Path(__file__).resolve().parents[3]
    return Path(named) if named else root / "build" / "native" / "libaiperf_micro.so"


def open_library() -> tuple[ctypes.CDLL, bool]:
    """The library on cuDNN and True, if it is built and CUDA sees a device; else the one on oneDNN.

    Raises OSError if that one cannot be loaded.
    """
    on_gpus = library().with_name(CUDNN)
    if on_gpus.is_file():
        loaded = ctypes.CDLL(str(on_gpus))
        loaded.micro_devices.restype = ctypes.c_int64
        if loaded.micro_devices() > 0:
            return loaded, True
    return ctypes.CDLL(str(library())), False
