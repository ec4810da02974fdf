"""JAX's `lax` operators, compiled by XLA."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp
from numpy.typing import NDArray

from replica.measure.micro.operands import Operands
from replica.measure.micro.stacks.contract import UnsupportedError
from workloads.micro import TRIAD_FACTOR, Case, Work


class JaxStack:
    """The stack of JAX: each pass is one function, compiled once."""

    def __init__(self) -> None:
        # Otherwise calls wait in a queue of threads that need not keep their order. On CPUs a call
        # then ends when its result is there.
        jax.config.update("jax_cpu_enable_async_dispatch", False)

    def version(self) -> str:
        """The version of JAX."""
        return f"jax {jax.__version__}"

    def device(self) -> str:
        """The first device of JAX."""
        return str(jax.devices()[0])

    def kernel(self, work: Work, copies: Iterable[Operands], precision: str) -> JaxKernel:
        """Compile a pass, with copies of its operands on the device. Raises UnsupportedError."""
        tensors = [tuple(jnp.asarray(array, precision) for array in operands) for operands in copies]
        try:
            if work.case.operator == "triad":
                written = {copy: (jnp.zeros_like(each[0]),) for copy, each in enumerate(tensors)}
                return JaxKernel(_triad(tensors[0]), tensors, written)
            compiled = jax.jit(_function(work)).lower(*tensors[0]).compile()
        except (RuntimeError, NotImplementedError, ValueError, TypeError) as error:
            raise UnsupportedError(f"jax on {self.device()}: {str(error).splitlines()[0]}") from None
        return JaxKernel(compiled, tensors)


class JaxKernel:
    """A compiled function and its arrays on the device."""

    def __init__(
        self, function: Callable[..., Any], tensors: list[tuple[Any, ...]], written: dict[int, tuple[Any]] | None = None
    ) -> None:
        self._function, self._tensors = function, tensors
        self._written = written or {}
        """Memory into which a call writes its result, by copy; without it, JAX takes new memory."""
        self._results: dict[int, Any] = {}

    def call(self, copy: int) -> None:
        """Start the function; on accelerators JAX returns before it is done."""
        # The memory was donated: the next call on this copy writes into the result of this one.
        self._results[copy] = self._function(*self._tensors[copy], *self._written.get(copy, ()))
        if copy in self._written:
            self._written[copy] = (self._results[copy],)

    def synchronise(self) -> None:
        """Wait for all results, which an accelerator computes in order."""
        jax.block_until_ready(self._results)

    def result(self, copy: int) -> NDArray[Any]:
        """Give the last result of these operands."""
        return np.asarray(self._results[copy])


def _triad(vectors: tuple[Any, ...]) -> Callable[..., Any]:
    """Compile the triad into memory that is there before the clock starts, as STREAM's a is.

    The pages of a new result would take longer than the triad.
    """

    def into(b: Any, c: Any, a: Any) -> Any:  # XLA gives the memory of a to the result
        return b + jnp.asarray(TRIAD_FACTOR, b.dtype) * c

    compiled: Callable[..., Any] = (
        jax.jit(into, donate_argnums=2, keep_unused=True).lower(*vectors, vectors[0]).compile()
    )
    return compiled


def _function(work: Work) -> Callable[..., Any]:
    case = work.case
    if case.operator in ("fc", "gemm"):
        # The sums are as precise as the operands say, on GPUs as well.
        passes: dict[str, Callable[..., Any]] = {
            "forward": lambda a, b: jnp.matmul(a, b, precision=lax.Precision.HIGHEST),
            "input": lambda a, b: jnp.matmul(a, b.T, precision=lax.Precision.HIGHEST),
            "weights": lambda a, b: jnp.matmul(a.T, b, precision=lax.Precision.HIGHEST),
        }
        return passes[work.direction]
    forward = _convolution(case) if case.operator == "conv" else _pooling(case)
    return forward if work.direction == "forward" else _gradient(work, forward)


def _gradient(work: Work, forward: Callable[..., Any]) -> Callable[..., Any]:
    """Make the gradient alone: its forward pass is dead code to XLA, except that of max-pooling."""
    case = work.case
    shape = (work.batch, *case.input_shape)
    if work.direction == "weights":
        return lambda x, dy: jax.vjp(lambda w: forward(x, w), jnp.zeros(case.weight_shape, x.dtype))[1](dy)[0]
    if case.operator == "conv":
        return lambda dy, w: jax.vjp(lambda x: forward(x, w), jnp.zeros(shape, dy.dtype))[1](dy)[0]
    if case.operator == "maxpool":
        return lambda x, dy: jax.vjp(forward, x)[1](dy)[0]
    return lambda dy: jax.vjp(forward, jnp.zeros(shape, dy.dtype))[1](dy)[0]


def _convolution(case: Case) -> Callable[..., Any]:
    layout = ("NHWC", "HWIO", "NHWC") if len(case.sizes) == 2 else ("NDHWC", "DHWIO", "NDHWC")
    return lambda x, w: lax.conv_general_dilated(
        x, w, case.stride, case.padding, dimension_numbers=layout, precision=lax.Precision.HIGHEST
    )


def _pooling(case: Case) -> Callable[..., Any]:
    window, stride = (1, *case.kernel, 1), (1, *case.stride, 1)
    if case.operator == "maxpool":
        return lambda x: lax.reduce_window(x, -jnp.inf, lax.max, window, stride, "VALID")
    size = float(np.prod(case.kernel))
    return lambda x: lax.reduce_window(x, 0.0, lax.add, window, stride, "VALID") / size
