"""oneDNN, or cuDNN on a GPU, without a framework, through a library that `make native` builds."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiperf.machine.accelerators import find_accelerators
from replica.measure.micro.native_library import open_library
from replica.measure.micro.operands import Operands
from replica.measure.micro.stacks.contract import UnsupportedError
from workloads.micro import Shape, Work

_OPERATORS = {"conv": 0, "maxpool": 1, "averagepool": 2, "fc": 3, "gemm": 3, "triad": 4}
_DIRECTIONS = {"forward": 0, "input": 1, "weights": 2}
_PRECISIONS = {"float32": 0, "bfloat16": 1, "float16": 2}
_ERROR = 512


class _Shape(ctypes.Structure):
    """The structure `Shape` of native/micro.cpp and native/micro_cudnn.cpp."""

    _fields_ = (
        *(
            (name, ctypes.c_int64)
            for name in ("operation", "direction", "precision", "axes", "batch", "channels", "filters")
        ),
        *((name, ctypes.c_int64 * 3) for name in ("sizes", "outputs", "kernel", "stride", "before", "behind")),
    )


def _triple(values: Shape) -> Any:
    return (ctypes.c_int64 * 3)(*values)


class NativeStack:
    """The stack of oneDNN's primitives on CPUs, or cuDNN's on NVIDIA GPUs."""

    def __init__(self) -> None:
        self._library, self._gpu = open_library()
        self._library.micro_version.restype = ctypes.c_char_p
        # A pointer: as an int, the default of ctypes, it would lose its upper half.
        self._library.micro_create.restype = ctypes.c_void_p

    def version(self) -> str:
        """The version of oneDNN or cuDNN."""
        return str(self._library.micro_version().decode())

    def device(self) -> str:
        """The CPU, or the first GPU by the driver's name."""
        if not self._gpu:
            return "CPU:0"
        found = find_accelerators()
        return found[0].name if found else "GPU:0"

    def kernel(self, work: Work, copies: Iterable[Operands], precision: str) -> NativeKernel:
        """Create a primitive, with copies of its operands laid out. Raises UnsupportedError."""
        case = work.case
        images = case.operator in ("conv", "maxpool", "averagepool")
        padding = case.padding if case.operator == "conv" else ()
        shape = _Shape(
            _OPERATORS[case.operator],
            _DIRECTIONS[work.direction],
            _PRECISIONS[precision],
            len(case.sizes),
            work.batch,
            case.channels,
            case.filters,
            _triple(case.sizes),
            _triple(case.outputs if images else ()),
            _triple(case.kernel),
            _triple(case.stride),
            _triple(tuple(low for low, _ in padding)),
            _triple(tuple(high for _, high in padding)),
        )
        error = ctypes.create_string_buffer(_ERROR)
        handle = self._library.micro_create(ctypes.byref(shape), error, ctypes.c_int64(_ERROR))
        if not handle:
            device = "GPU" if self._gpu else "CPU"
            raise UnsupportedError(
                f"{self.version()} has no {precision} for it on this {device}: {error.value.decode()}"
            )
        kernel = NativeKernel(self._library, handle, work.result_shape)
        for operands in copies:
            kernel.add(operands)
        return kernel


class NativeKernel:
    """A primitive and its memory."""

    def __init__(self, loaded: ctypes.CDLL, handle: int, result_shape: Shape) -> None:
        self._library, self._handle, self._shape = loaded, ctypes.c_void_p(handle), result_shape
        self._error, self._size = ctypes.create_string_buffer(_ERROR), ctypes.c_int64(_ERROR)

    def __del__(self) -> None:
        self._library.micro_destroy(self._handle)

    def add(self, operands: Operands) -> None:
        """Lay out operands as the primitive prefers. Raises UnsupportedError."""
        # `data_as` keeps the array alive as long as the pointer.
        pointers = [np.ascontiguousarray(array).ctypes.data_as(ctypes.c_void_p) for array in operands]
        second = pointers[1] if len(pointers) > 1 else None
        self._check(self._library.micro_add(self._handle, pointers[0], second, self._error, self._size))

    def call(self, copy: int) -> None:
        """Start the primitive."""
        self._check(self._library.micro_call(self._handle, ctypes.c_int64(copy), self._error, self._size))

    def synchronise(self) -> None:
        """Wait for the library's stream."""
        self._library.micro_wait(self._handle)

    def result(self, copy: int) -> NDArray[Any]:
        """Give the last result of these operands, as float32."""
        found = np.empty(self._shape, np.float32)
        where = found.ctypes.data_as(ctypes.c_void_p)
        self._check(self._library.micro_result(self._handle, ctypes.c_int64(copy), where, self._error, self._size))
        return found

    def _check(self, failed: int) -> None:
        if failed:
            raise UnsupportedError(f"the native stack: {self._error.value.decode()}")
