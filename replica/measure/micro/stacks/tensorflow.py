"""TensorFlow's raw operations: oneDNN on CPUs, cuDNN on GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from replica.measure.micro.operands import Operands
from replica.measure.micro.stacks.contract import UnsupportedError
from workloads.micro import TRIAD_FACTOR, Case, Work


class TensorFlowStack:
    """The stack of TensorFlow: each pass is one raw operation in a function of its own."""

    def version(self) -> str:
        """The version of TensorFlow."""
        return f"tensorflow {tf.__version__}"

    def device(self) -> str:
        """The first GPU, or the CPU."""
        return "GPU:0" if tf.config.list_physical_devices("GPU") else "CPU:0"

    def kernel(self, work: Work, copies: Iterable[Operands], precision: str) -> TensorFlowKernel:
        """Trace a pass, with copies of its operands on the device. Raises UnsupportedError."""
        with tf.device(self.device()):
            tensors = [tuple(tf.cast(tf.constant(array), precision) for array in operands) for operands in copies]
            if work.case.operator == "maxpool" and work.direction == "input":
                # A training step has the output of its forward pass.
                pool = _pooling(work.case, False, ())
                tensors = [(images, pool(images), gradient) for images, gradient in tensors]
            # As two operations the triad would also write and read 3 c, bytes that are not counted.
            fused = True if work.case.operator == "triad" else None
            kernel = TensorFlowKernel(tf.function(_function(work), autograph=False, jit_compile=fused), tensors)
            try:
                # The first call traces and compiles: what the device cannot do shows here, not
                # while it is timed.
                kernel.call(0)
            except (tf.errors.OpError, NotImplementedError, ValueError) as error:
                raise UnsupportedError(f"tensorflow on {self.device()}: {str(error).splitlines()[0]}") from None
        return kernel


class TensorFlowKernel:
    """A compiled function and its tensors on the device."""

    def __init__(self, function: Callable[..., Any], tensors: list[tuple[Any, ...]]) -> None:
        self._function = function
        self._tensors = tensors
        self._results: dict[int, Any] = {}

    def call(self, copy: int) -> None:
        """Start the pass."""
        self._results[copy] = self._function(*self._tensors[copy])

    def synchronise(self) -> None:
        """Wait for the device: CPUs compute within the call, GPUs on a stream."""
        if tf.config.list_physical_devices("GPU"):
            tf.test.experimental.sync_devices()

    def result(self, copy: int) -> NDArray[Any]:
        """Give the last result of these operands."""
        return np.asarray(self._results[copy])


def _function(work: Work) -> Callable[..., Any]:
    case, raw = work.case, tf.raw_ops
    if case.operator == "triad":
        return lambda b, c: b + tf.cast(TRIAD_FACTOR, b.dtype) * c
    if case.operator in ("fc", "gemm"):
        return lambda a, b: raw.MatMul(
            a=a, b=b, transpose_a=work.direction == "weights", transpose_b=work.direction == "input"
        )
    if case.operator == "conv":
        return _convolution(work)
    return _pooling(case, work.direction == "input", (work.batch, *case.input_shape))


def _convolution(work: Work) -> Callable[..., Any]:
    case, raw = work.case, tf.raw_ops
    options = {"strides": (1, *case.stride, 1), "padding": "SAME"}
    images = (work.batch, *case.input_shape)
    forward, gradient, weights = (
        (raw.Conv2D, raw.Conv2DBackpropInput, raw.Conv2DBackpropFilter)
        if len(case.sizes) == 2
        else (raw.Conv3D, raw.Conv3DBackpropInputV2, raw.Conv3DBackpropFilterV2)
    )
    if work.direction == "forward":
        return lambda x, w: forward(input=x, filter=w, **options)
    if work.direction == "input":
        return lambda dy, w: gradient(input_sizes=images, filter=w, out_backprop=dy, **options)
    return lambda x, dy: weights(input=x, filter_sizes=case.weight_shape, out_backprop=dy, **options)


def _pooling(case: Case, backward: bool, images: tuple[int, ...]) -> Callable[..., Any]:
    raw, flat = tf.raw_ops, len(case.sizes) == 2
    options = {"ksize": (1, *case.kernel, 1), "strides": (1, *case.stride, 1), "padding": "VALID"}
    if case.operator == "maxpool":
        pool, gradient = (raw.MaxPool, raw.MaxPoolGrad) if flat else (raw.MaxPool3D, raw.MaxPool3DGrad)
        if not backward:
            return lambda x: pool(input=x, **options)
        return lambda x, y, dy: gradient(orig_input=x, orig_output=y, grad=dy, **options)
    if backward and flat:
        return lambda dy: raw.AvgPoolGrad(orig_input_shape=images, grad=dy, **options)
    if backward:
        return lambda dy: raw.AvgPool3DGrad(orig_input_shape=images, grad=dy, **options)
    return (lambda x: raw.AvgPool(value=x, **options)) if flat else (lambda x: raw.AvgPool3D(input=x, **options))
