"""The places of the native libraries that `make native` builds, and which of them to use."""

import ctypes
import os
from pathlib import Path

from aiperf.cli.packages import OWN, is_checkout

VARIABLE = "AIPERF_NATIVE"
"""Variable that names the library on oneDNN, if it lies elsewhere; that on cuDNN is next to it."""

CUDNN = "libaiperf_micro_cudnn.so"


def library() -> Path:
    """The path of the library on oneDNN, built or not: named by VARIABLE, or of these sources."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else OWN / "build" / "native" / "libaiperf_micro.so"


def why_no_library() -> str:
    """The reason why there is no library, and what to type; empty if there is one."""
    if library().is_file():
        return ""
    if VARIABLE in os.environ:
        return f"{library()}, which {VARIABLE} names, is not there; 'make native' builds it in AIPerf's sources"
    if is_checkout():
        return f"{library()} is not built; 'make native' builds it, in {OWN}"
    return (
        f"there is no library: AIPerf is installed without its sources. 'make native' builds it in a copy of them; "
        f"then: export {VARIABLE}=SOURCES/build/native/libaiperf_micro.so"
    )


def open_library() -> tuple[ctypes.CDLL, bool]:
    """Open the library on cuDNN if it is built and CUDA sees a device; True then. Else oneDNN's.

    Raises OSError if that one cannot be loaded.
    """
    on_gpus = library().with_name(CUDNN)
    if on_gpus.is_file():
        loaded = ctypes.CDLL(str(on_gpus))
        # Without a declaration ctypes takes a result for an int of 32 bits.
        loaded.micro_devices.restype = ctypes.c_int64
        if loaded.micro_devices() > 0:
            return loaded, True
    return ctypes.CDLL(str(library())), False
