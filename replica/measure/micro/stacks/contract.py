"""The contract of a software stack that runs single operators."""

from collections.abc import Iterable
from typing import Any, Protocol

from numpy.typing import NDArray

from aiperf.errors import AiperfError
from replica.measure.micro.operands import Operands
from workloads.micro import Work


class UnsupportedError(AiperfError):
    """A stack or device that cannot run an operator, a pass or a precision."""


class TooLargeError(UnsupportedError):
    """Operands that memory does not hold."""


class Kernel(Protocol):
    """One pass, ready to be called, with operands on the device."""

    def call(self, copy: int) -> None:
        """Start the pass on the copy of that number; its result is kept until its next call."""

    def synchronise(self) -> None:
        """Wait until the device has finished every call."""

    def result(self, copy: int) -> NDArray[Any]:
        """Give the result of the last call on these operands, in the precision of the pass."""


class Stack(Protocol):
    """A library that computes operators."""

    def version(self) -> str:
        """The name and version of the libraries."""

    def device(self) -> str:
        """The device that it computes on."""

    def kernel(self, work: Work, copies: Iterable[Operands], precision: str) -> Kernel:
        """Prepare a pass on copies of its operands (`Work.operand_shapes`, channels last).

        Each copy is taken to the device before the next one is drawn, and not held on this side.
        Raises UnsupportedError if the stack or its device cannot do it.
        """


TOLERANCES = {"float32": 2e-4, "bfloat16": 4e-2, "float16": 1e-2}
"""Largest `relative_error` by precision. Winograd and FFT lose about two digits of float32."""
